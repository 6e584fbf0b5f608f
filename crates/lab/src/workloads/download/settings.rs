//! Parses the download of one cell and the links that the download uses.

use super::{Download, SIZE};
use crate::bench::workload::Workload;
use crate::model::file::{Document, FileError, LinkSettings, TO, VIA, bounded};
use results::Axes;
use units::Bytes;

/// The web server, and the clients that fetch a file from the server at the same time.
#[derive(Debug, Clone)]
pub(super) struct DownloadSettings {
    pub(super) server: String,
    /// The links to the clients, at least one.
    pub(super) ways: Vec<Way>,
    pub(super) size: Bytes,
    /// All links of the cell, including the links to the clients.
    pub(super) links: Vec<LinkSettings>,
}

/// A link from the server, and the host at its other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// The link's name, or the host's name if the link has none.
    pub(super) name: String,
    pub(super) to: String,
}

impl DownloadSettings {
    pub(super) fn parse(document: &Document, axes: &Axes) -> Result<Self, FileError> {
        let ends = Download.ends(document, axes)?;
        let ways = match document.workload.get_ref().place(VIA) {
            Some(_) => ways(document, axes, &ends.from)?,
            None => vec![Way { name: ends.to.clone(), to: ends.to }],
        };
        let Some(size) = document.workload_key(axes, SIZE, size)? else {
            let message = "`size` is missing here: how large is the file, as in `640KiB`?";
            return Err(document.source.error(document.workload.span(), message));
        };
        let links = document.links_at(axes)?;
        for way in &ways {
            let joins = links.iter().find(|link| link.joins(&ends.from, &way.to));
            let config = joins.and_then(|link| link.way_from(&ends.from));
            // The lab does not know the rate of a path between real machines, nor the ideal speed
            // of this path.
            let is_known = config.and_then(|config| config.rate.mean_rate()).is_some();
            if !is_known && !document.has_real_hosts() {
                let message = format!(
                    "the way to `{}` needs an emulated link with a `rate`: the ideal is unknown \
                     without one",
                    way.to
                );
                return Err(document.source.error(document.place_of_workload(&[VIA, TO]), message));
            }
        }
        Ok(Self { server: ends.from, ways, size, links })
    }
}

/// Returns the links that `via` names, at least one, in the order of `via`.
pub(super) fn ways(document: &Document, axes: &Axes, from: &str) -> Result<Vec<Way>, FileError> {
    let names = document.workload_key(axes, VIA, |text| Ok(text.to_owned()))?.unwrap_or_default();
    let mut ways: Vec<Way> = Vec::new();
    for name in names.split(',').map(str::trim) {
        let to = document.far_end(from, name, Download.loopback())?;
        if ways.iter().any(|way| way.name == name) {
            let message = format!("`via` names the way `{name}` twice: name it once");
            return Err(document.source.error(document.place_of_workload(&[VIA]), message));
        }
        ways.push(Way { name: name.to_owned(), to });
    }
    Ok(ways)
}

fn size(text: &str) -> Result<Bytes, String> {
    bounded(text, Bytes::new(1)..=LARGEST, || format!("a file has from 1 byte to {LARGEST}"))
}

/// Maximum size of the file that clients download.
const LARGEST: Bytes = Bytes::new(1 << 30);
