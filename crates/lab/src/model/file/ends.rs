//! The hosts between which a workload runs, and the number of the workload's streams.

use super::locate::FileError;
use super::schema::{Document, LinkSpec};
use super::workload_table::Key;
use results::Axes;
use std::ops::Range;
use toml::Spanned;

/// The keys that all workloads share, beside `kind`, `pin` and `omit`.
pub(crate) const SHARED_KEYS: [Key; 4] = [FROM, TO, VIA, STREAMS];
pub(crate) const FROM: Key = Key::text("from");
/// The key with the host at the other side of a link. `via` names the link instead.
pub(crate) const TO: Key = Key::text("to");
/// The key with the name of the link to the other host, or `loopback`.
pub(crate) const VIA: Key = Key::text("via");
pub(crate) const STREAMS: Key = Key::count("streams");

/// The sending and the receiving host in one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    pub from: String,
    /// The receiving host, which is `from` itself if the workload uses the loopback.
    pub to: String,
    pub streams: u32,
}

/// Whether a workload can use a host's connection to itself; the error is the reason why not.
pub(crate) type Loopback = Result<(), &'static str>;

impl Document {
    /// Returns the hosts of the workload in the cell at `axes`.
    pub(crate) fn ends_at(&self, axes: &Axes, loopback: Loopback) -> Result<Ends, FileError> {
        let from = self.sender_at(axes)?;
        let to = match self.workload_key(axes, TO, |text| Ok(text.to_owned()))? {
            Some(to) => {
                self.one_way()?;
                self.neighbour(&from, &to)?
            }
            None => {
                let via = self.workload_key(axes, VIA, |text| Ok(text.to_owned()))?;
                let Some(via) = via else { return Err(self.no_way()) };
                self.far_end(&from, &via, loopback)?
            }
        };
        Ok(Ends { from, to, streams: self.streams_at(axes)? })
    }

    /// Returns the host that the data comes from.
    pub(crate) fn sender_at(&self, axes: &Axes) -> Result<String, FileError> {
        let Some(from) = self.workload_key(axes, FROM, |text| Ok(text.to_owned()))? else {
            let message = "`from` is missing here: which host does the data come from?";
            return Err(self.source.error(self.workload.span(), message));
        };
        self.known_host(&from, self.place_of_workload(&[FROM]))?;
        Ok(from)
    }

    pub(crate) fn streams_at(&self, axes: &Axes) -> Result<u32, FileError> {
        Ok(self.workload_count(axes, STREAMS, 1..=128)?.unwrap_or(1))
    }

    /// Returns the host to which `via` leads from `from`.
    pub(crate) fn far_end(
        &self,
        from: &str,
        via: &str,
        loopback: Loopback,
    ) -> Result<String, FileError> {
        let wrong =
            |message: String| Err(self.source.error(self.place_of_workload(&[VIA]), message));
        if via == LOOPBACK {
            return match loopback {
                Ok(()) => Ok(from.to_owned()),
                Err(reason) => wrong(reason.to_owned()),
            };
        }
        let named = |link: &&LinkSpec| link.name.as_ref().is_some_and(|name| name.get_ref() == via);
        let Some(link) = self.link.iter().map(Spanned::get_ref).find(named) else {
            let names = self.link.iter().filter_map(|link| link.get_ref().name.as_ref());
            let known: Vec<&str> =
                names.map(|name| name.get_ref().as_str()).chain([LOOPBACK]).collect();
            let hint = units::did_you_mean(via, known.iter().copied());
            return wrong(match hint.is_empty() {
                true => format!("no way `{via}`; known: {}", known.join(", ")),
                false => format!("no way `{via}`{hint}"),
            });
        };
        match link.other_end(from) {
            Some(to) => Ok(to.to_owned()),
            None if !self.is_host(from) => Ok(from.to_owned()),
            None => wrong(format!("link `{via}` does not begin at `{from}`")),
        }
    }

    /// Returns the axis whose value names the links that the workload uses, if there is such an
    /// axis. A value may name several links. Each of these links is also a place on the axis.
    pub(crate) fn axis_of_ways(&self) -> Option<&str> {
        let via = self.workload.get_ref().text(VIA)?;
        let axis = via.strip_prefix('{')?.strip_suffix('}')?;
        self.axes.contains_key(axis).then_some(axis)
    }

    /// Refuses a file with both `via` and `to`.
    pub(crate) fn one_way(&self) -> Result<(), FileError> {
        match self.workload.get_ref().place(VIA) {
            Some(place) => {
                let message = "`to` and `via` both say where the data goes: keep one";
                Err(self.source.error(place, message))
            }
            None => Ok(()),
        }
    }

    fn is_host(&self, name: &str) -> bool {
        self.hosts.iter().any(|host| host.get_ref() == name)
    }

    fn no_way(&self) -> FileError {
        let message = "`to` is missing here, or `via`: where does the data go?";
        self.source.error(self.workload.span(), message)
    }

    /// Returns `to` if a link connects `from` and `to`.
    fn neighbour(&self, from: &str, to: &str) -> Result<String, FileError> {
        let place: Range<usize> = self.place_of_workload(&[TO]);
        self.known_host(to, place.clone())?;
        // Accept an unknown host, which an earlier check has reported.
        if !self.is_host(from) || !self.is_host(to) {
            return Ok(to.to_owned());
        }
        let wrong = |message| Err(self.source.error(place.clone(), message));
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
}

impl LinkSpec {
    fn other_end(&self, host: &str) -> Option<&str> {
        let [a, b] = &self.between.get_ref().0;
        match (a.get_ref() == host, b.get_ref() == host) {
            (true, _) => Some(b.get_ref()),
            (_, true) => Some(a.get_ref()),
            _ => None,
        }
    }
}

/// The value of `via` for a host's connection to itself.
pub(super) const LOOPBACK: &str = "loopback";
