//! The flows that share a link in one cell.

use super::locate::{FileError, nearest};
use super::placeholders::fill;
use super::schema::{LabFile, NumberOrText, WorkloadKind};
use cc::Algorithm;
use report::Axes;
use toml::Spanned;
use units::{Bytes, Span};

/// Who is on the link, and with what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowsSettings {
    /// Flows of the system under test.
    pub own: u32,
    pub beside: Option<Beside>,
    /// From one flow's start to the next one's; those beside begin first.
    pub stagger: Span,
    /// What each flow of the system under test carries; without end if nothing is said.
    pub size: Option<Bytes>,
}

/// Flows that are there as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beside {
    pub count: u32,
    /// `None` is the kind of the system under test.
    pub algorithm: Option<Algorithm>,
}

impl LabFile {
    /// The flows of the cell at `axes`; one alone where the file says nothing.
    pub fn flows_at(&self, axes: &Axes) -> Result<FlowsSettings, FileError> {
        let spec = self.workload.get_ref();
        let own = match spec.kind {
            WorkloadKind::Flows => self.count_at(axes, spec.flows.as_ref(), "flows", MOST_FLOWS)?,
            _ => self.count_at(axes, spec.streams.as_ref(), "streams", MOST_FLOWS)?,
        };
        let filled = |written: &Spanned<String>| {
            let known: Vec<&str> = axes.keys().map(String::as_str).collect();
            fill(written.get_ref(), &known, |name| axes.get(name).cloned())
                .map_err(|message| self.source.error(written.span(), message))
        };
        let wrong =
            |written: &Spanned<String>, message: String| self.source.error(written.span(), message);
        let beside = match &spec.beside {
            Some(written) => {
                beside(&filled(written)?).map_err(|message| wrong(written, message))?
            }
            None => None,
        };
        let stagger = match &spec.stagger {
            Some(written) => {
                filled(written)?.parse().map_err(|error| wrong(written, format!("{error}")))?
            }
            None => Span::ZERO,
        };
        if stagger > LONGEST_STAGGER {
            let place = spec.stagger.as_ref().map_or(self.workload.span(), Spanned::span);
            return Err(self.source.error(place, "`stagger` is at most 60s"));
        }
        let size = match &spec.size {
            Some(written) => Some(self.flow_size(written, &filled(written)?)?),
            None => None,
        };
        Ok(FlowsSettings { own, beside, stagger, size })
    }

    /// Keys that only one kind of workload has a meaning for.
    pub(super) fn check_flow_keys(&self) -> Result<(), FileError> {
        let spec = self.workload.get_ref();
        let place = |count: &Option<Spanned<NumberOrText>>| count.as_ref().map(Spanned::span);
        let text = |text: &Option<Spanned<String>>| text.as_ref().map(Spanned::span);
        let own = [
            ("flows", place(&spec.flows)),
            ("beside", text(&spec.beside)),
            ("stagger", text(&spec.stagger)),
            ("size", text(&spec.size)),
        ];
        if spec.kind == WorkloadKind::Flows {
            let Some(streams) = place(&spec.streams) else { return Ok(()) };
            let message = "a workload `flows` counts `flows`, not `streams`";
            return Err(self.source.error(streams, message));
        }
        for (key, place) in own {
            if let Some(place) = place {
                let message = format!("`{key}` is for workloads of `kind = \"flows\"`");
                return Err(self.source.error(place, message));
            }
        }
        Ok(())
    }

    fn flow_size(&self, written: &Spanned<String>, text: &str) -> Result<Bytes, FileError> {
        let size: Bytes =
            text.parse().map_err(|error| self.source.error(written.span(), format!("{error}")))?;
        match size {
            Bytes::ZERO => Err(self.source.error(written.span(), "a flow carries something")),
            size => Ok(size),
        }
    }
}

/// `none`, `cubic`, `own`, `4xcubic`.
fn beside(text: &str) -> Result<Option<Beside>, String> {
    if text == "none" {
        return Ok(None);
    }
    let (count, name) = match text.split_once('x') {
        Some((count, name)) if count.chars().all(|c| c.is_ascii_digit()) && !count.is_empty() => {
            (count.parse().unwrap_or(u32::MAX), name)
        }
        _ => (1, text),
    };
    if !(1..=MOST_FLOWS).contains(&count) {
        return Err(format!("`{text}`: from 1 to {MOST_FLOWS} flows may be beside"));
    }
    if name == "own" {
        return Ok(Some(Beside { count, algorithm: None }));
    }
    let algorithm = name.parse::<Algorithm>().map_err(|error| {
        let known = Algorithm::ALL.iter().map(|algorithm| algorithm.name());
        format!("{error}, none and own{}", nearest(name, known.chain(["none", "own"])))
    })?;
    Ok(Some(Beside { count, algorithm: Some(algorithm) }))
}

const MOST_FLOWS: u32 = 10_000;
const LONGEST_STAGGER: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_beside_is_read() {
        assert_eq!(beside("none"), Ok(None));
        let cubic = |count| Some(Beside { count, algorithm: Some(Algorithm::Cubic) });
        assert_eq!(beside("cubic"), Ok(cubic(1)));
        assert_eq!(beside("4xcubic"), Ok(cubic(4)));
        assert_eq!(beside("2xown"), Ok(Some(Beside { count: 2, algorithm: None })));
        assert!(beside("cubik").unwrap_err().contains("did you mean `cubic`?"));
        assert!(beside("0xcubic").unwrap_err().contains("from 1"));
    }
}
