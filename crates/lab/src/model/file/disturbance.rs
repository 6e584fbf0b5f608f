//! `[disturbance]`: lateness and stolen CPU time that the lab causes on purpose. A lab with this
//! table shows how much disturbance a figure tolerates.

use super::locate::FileError;
use super::schema::Document;
use emu::Stalls;
use results::Axes;
use settings::table;
use toml::Spanned;
use units::Span;

table! {
    #[derive(Debug, Clone, Default)]
    pub struct DisturbanceSpec {
        /// Length and interval of the emulator's deliberate sleeps: `2ms every 20ms`.
        pub stalls: Option<Spanned<String>>,
        /// Length and interval at which real-time threads take the workload's CPUs away, as a
        /// hypervisor does.
        pub stolen: Option<Spanned<String>>,
    }
}

/// The disturbance of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Disturbance {
    pub stalls: Option<Stalls>,
    pub stolen: Option<Stalls>,
}

impl DisturbanceSpec {
    pub(super) fn mentions(&self, text: &str) -> bool {
        let settings = [&self.stalls, &self.stolen].into_iter().flatten();
        settings.into_iter().any(|setting| setting.get_ref().contains(text))
    }
}

impl Document {
    pub(crate) fn disturbance_at(&self, axes: &Axes) -> Result<Disturbance, FileError> {
        let Some(written) = &self.disturbance else { return Ok(Disturbance::default()) };
        let read = |setting: &Option<Spanned<String>>| match setting {
            None => Ok(None),
            Some(text) => stalls(&self.filled(axes, text)?)
                .map_err(|message| self.source.error(text.span(), message)),
        };
        let written = written.get_ref();
        Ok(Disturbance { stalls: read(&written.stalls)?, stolen: read(&written.stolen)? })
    }
}

/// Parses length and interval of a disturbance: `none`, or `2ms every 20ms`.
fn stalls(text: &str) -> Result<Option<Stalls>, String> {
    if text == "none" {
        return Ok(None);
    }
    let Some((length, every)) = text.split_once(" every ") else {
        return Err(format!("`{text}` is no disturbance: write `2ms every 20ms`, or `none`"));
    };
    let span = |text: &str| text.trim().parse::<Span>().map_err(|error| error.to_string());
    let (length, every) = (span(length)?, span(every)?);
    if length == Span::ZERO || length * 2 > every || every > LONGEST {
        return Err(format!(
            "`{text}`: a disturbance takes at most half of the time, and comes at least every \
             {LONGEST}"
        ));
    }
    Ok(Some(Stalls { length, every }))
}

const LONGEST: Span = Span::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbance_has_a_length_and_an_interval() {
        let (length, every) = (Span::from_micros(500), Span::from_millis(5));
        assert_eq!(stalls("500us every 5ms"), Ok(Some(Stalls { length, every })));
        assert_eq!(stalls("none"), Ok(None));
        for wrong in ["5ms", "0s every 5ms", "3ms every 5ms", "1s every 11s", "x every 5ms"] {
            assert!(stalls(wrong).is_err(), "{wrong}");
        }
    }
}
