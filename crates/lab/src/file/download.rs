//! The download of one cell and the ways it takes.

use super::locate::FileError;
use super::schema::LabFile;
use results::Axes;
use toml::Spanned;
use units::Bytes;

/// The web server, and the clients that fetch a file from it at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownloadSettings {
    pub server: String,
    /// At least one way.
    pub ways: Vec<Way>,
    pub size: Bytes,
}

/// A link from the server, and the host at its other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The link's name, or the host's if the link has none.
    pub name: String,
    pub to: String,
}

impl LabFile {
    /// The downloads of the cell at `axes`.
    pub fn download_at(&self, axes: &Axes) -> Result<DownloadSettings, FileError> {
        let spec = self.workload.get_ref();
        let ends = self.workload_at(axes)?;
        let ways = match &spec.via {
            Some(via) => self.ways_at(axes, &ends.from, via)?,
            None => vec![Way { name: ends.to.clone(), to: ends.to }],
        };
        let Some(written) = &spec.size else {
            let message = "`size` is missing here: how large is the file, as in `640KiB`?";
            return Err(self.source.error(self.workload.span(), message));
        };
        let wrong = |message: String| self.source.error(written.span(), message);
        let size: Bytes =
            self.filled(axes, written)?.parse().map_err(|error| wrong(format!("{error}")))?;
        if size == Bytes::ZERO || size > LARGEST {
            return Err(wrong(format!("a file has from 1 byte to {LARGEST}")));
        }
        let links = self.links_at(axes)?;
        for way in &ways {
            let joins = links.iter().find(|link| link.joins(&ends.from, &way.to));
            let config = joins.and_then(|link| link.way_from(&ends.from));
            if config.and_then(|config| config.rate.mean_rate()).is_none() {
                let place = spec.via.as_ref().or(spec.to.as_ref());
                let place = place.map_or(self.workload.span(), Spanned::span);
                let message = format!(
                    "the way to `{}` needs an emulated link with a `rate`: the ideal is unknown \
                     without one",
                    way.to
                );
                return Err(self.source.error(place, message));
            }
        }
        Ok(DownloadSettings { server: ends.from, ways, size })
    }

    /// The axis whose value names the ways, if there is such an axis. A value may name several
    /// ways; each of them is also a place on that axis.
    pub(crate) fn axis_of_ways(&self) -> Option<&str> {
        let via = self.workload.get_ref().via.as_ref()?.get_ref();
        let axis = via.strip_prefix('{')?.strip_suffix('}')?;
        self.axes.contains_key(axis).then_some(axis)
    }

    /// The ways that `via` names, in its order. There is at least one.
    pub(super) fn ways_at(
        &self,
        axes: &Axes,
        from: &str,
        via: &Spanned<String>,
    ) -> Result<Vec<Way>, FileError> {
        let text = self.filled(axes, via)?;
        let mut ways: Vec<Way> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let to = self.far_end(from, name, via)?;
            if ways.iter().any(|way| way.name == name) {
                let message = format!("`via` names the way `{name}` twice: name it once");
                return Err(self.source.error(via.span(), message));
            }
            ways.push(Way { name: name.to_owned(), to });
        }
        Ok(ways)
    }
}

/// The largest file that a turn may give to a web server.
const LARGEST: Bytes = Bytes::new(1 << 30);
