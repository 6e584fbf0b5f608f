//! The workload of the file, with the values of one cell filled in.

use super::locate::{FileError, nearest};
use super::schema::{LabFile, NumberOrText, WorkloadKind};
use results::Axes;
use std::ops::RangeInclusive;
use toml::Spanned;

/// The sending and the receiving host in one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadSettings {
    pub from: String,
    /// Equal to `from` if the workload uses the loopback.
    pub to: String,
    pub streams: u32,
}

impl LabFile {
    /// The workload of the cell at `axes`.
    pub fn workload_at(&self, axes: &Axes) -> Result<WorkloadSettings, FileError> {
        let spec = self.workload.get_ref();
        let filled = |text: &Spanned<String>| self.filled(axes, text);
        let Some(written) = &spec.from else {
            let message = "`from` is missing here: which host does the data come from?";
            return Err(self.source.error(self.workload.span(), message));
        };
        let from = filled(written)?;
        self.known_host(&from, written.span())?;
        let to = match (&spec.to, &spec.via) {
            (None, Some(via)) if spec.kind == WorkloadKind::Download => {
                self.ways_at(axes, &from, via)?.swap_remove(0).to
            }
            (Some(to), None) => self.neighbour(&from, &filled(to)?, to)?,
            (None, Some(via)) => self.far_end(&from, &filled(via)?, via)?,
            (Some(_), Some(via)) => {
                let message = "`to` and `via` both say where the data goes: keep one";
                return Err(self.source.error(via.span(), message));
            }
            (None, None) => {
                let message = "`to` is missing here, or `via`: where does the data go?";
                return Err(self.source.error(self.workload.span(), message));
            }
        };
        Ok(WorkloadSettings { from, to, streams: self.streams_at(axes)? })
    }

    /// `to`, if a link connects it to `from`.
    fn neighbour(
        &self,
        from: &str,
        to: &str,
        written: &Spanned<String>,
    ) -> Result<String, FileError> {
        self.known_host(to, written.span())?;
        let wrong = |message| Err(self.source.error(written.span(), message));
        if from == to {
            return wrong(format!(
                "a workload from `{from}` to itself: if its loopback is meant, write \
                 `via = \"{LOOPBACK}\"` instead of `to`"
            ));
        }
        if !self.link.iter().any(|link| link.get_ref().other_end(from) == Some(to)) {
            return wrong(format!("no `[[link]]` joins `{from}` and `{to}` for the workload"));
        }
        Ok(to.to_owned())
    }

    /// The host that `via` leads to from `from`.
    pub(super) fn far_end(
        &self,
        from: &str,
        via: &str,
        written: &Spanned<String>,
    ) -> Result<String, FileError> {
        let wrong = |message| Err(self.source.error(written.span(), message));
        if via == LOOPBACK {
            return match self.workload.get_ref().kind {
                WorkloadKind::Bulk | WorkloadKind::Messages | WorkloadKind::Crowd => {
                    Ok(from.to_owned())
                }
                WorkloadKind::Download => wrong(format!(
                    "a download needs an emulated link with a `rate`, and `{LOOPBACK}` has none"
                )),
                WorkloadKind::Flows => {
                    wrong(format!("flows share an emulated link: `{LOOPBACK}` is none"))
                }
                WorkloadKind::LinkAccuracy | WorkloadKind::Validate => {
                    wrong(format!("only an emulated link can be judged, not `{LOOPBACK}`"))
                }
            };
        }
        let named = |link: &&super::schema::LinkSpec| {
            link.name.as_ref().is_some_and(|name| name.get_ref() == via)
        };
        let Some(link) = self.link.iter().map(Spanned::get_ref).find(named) else {
            let names = self.link.iter().filter_map(|link| link.get_ref().name.as_ref());
            let known: Vec<&str> =
                names.map(|name| name.get_ref().as_str()).chain([LOOPBACK]).collect();
            let hint = nearest(via, known.iter().copied());
            return wrong(match hint.is_empty() {
                true => format!("no way `{via}`; known: {}", known.join(", ")),
                false => format!("no way `{via}`{hint}"),
            });
        };
        match link.other_end(from) {
            Some(to) => Ok(to.to_owned()),
            None => wrong(format!("link `{via}` does not begin at `{from}`")),
        }
    }

    fn streams_at(&self, axes: &Axes) -> Result<u32, FileError> {
        self.count_at(axes, self.workload.get_ref().streams.as_ref(), "streams", 128)
    }

    /// The number from the file or an axis. The default is one.
    pub(super) fn count_at(
        &self,
        axes: &Axes,
        written: Option<&Spanned<NumberOrText>>,
        key: &str,
        most: u32,
    ) -> Result<u32, FileError> {
        match written {
            Some(written) => self.number_at(axes, written, key, 1..=most),
            None => Ok(1),
        }
    }

    pub(super) fn number_at(
        &self,
        axes: &Axes,
        written: &Spanned<NumberOrText>,
        key: &str,
        range: RangeInclusive<u32>,
    ) -> Result<u32, FileError> {
        let wrong = |message| self.source.error(written.span(), message);
        let count = match written.get_ref() {
            NumberOrText::Number(count) => *count,
            NumberOrText::Text(text) => {
                let filled = self.filled_text(axes, text).map_err(wrong)?;
                filled.parse().map_err(|_| wrong(format!("`{filled}` is no number of {key}")))?
            }
        };
        match range.contains(&count) {
            true => Ok(count),
            false => Err(wrong(format!("`{key}` is from {} to {}", range.start(), range.end()))),
        }
    }
}

impl super::schema::LinkSpec {
    fn other_end(&self, host: &str) -> Option<&str> {
        let [a, b] = self.between.get_ref();
        match (a.get_ref() == host, b.get_ref() == host) {
            (true, _) => Some(b.get_ref()),
            (_, true) => Some(a.get_ref()),
            _ => None,
        }
    }
}

/// The value of `via` for a host's connection to itself.
pub(super) const LOOPBACK: &str = "loopback";
