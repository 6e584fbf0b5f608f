//! A system's own settings: its queue at the bottleneck, and CAQM's settings.

use super::locate::FileError;
use super::schema::{Document, SystemSpec};
use cc::caqm::CaqmSettings;
use link::{QueueConfig, QueueOfPath};
use results::Axes;
use sim::CaqmHosts;
use toml::Spanned;
use units::{Bytes, Span};

/// The settings of a system in one cell.
#[derive(Debug, Clone)]
pub struct SystemSettings {
    /// The queue in the data's direction, which replaces the queue of the link.
    pub queue: Option<QueueConfig>,
    pub caqm: CaqmHosts,
}

impl Document {
    /// Returns the system's settings in the cell at `axes`. `product`: the bandwidth-delay product
    /// of the link, if it is known.
    pub fn system_at(
        &self,
        axes: &Axes,
        system: &SystemSpec,
        product: Option<Bytes>,
    ) -> Result<SystemSettings, FileError> {
        let mut settings = SystemSettings { queue: None, caqm: CaqmHosts::default() };
        if let Some(written) = &system.queue {
            let wrong = |message: String| self.source.error(written.span(), message);
            let read = self.filled(axes, written)?.parse();
            let read = read.and_then(|of_path: QueueOfPath| of_path.on(product));
            settings.queue = Some(read.map_err(|e| wrong(e.to_string()))?);
        }
        if let Some(written) = &system.caqm {
            let read = caqm(&self.filled(axes, written)?);
            settings.caqm = read.map_err(|message| self.source.error(written.span(), message))?;
        }
        Ok(settings)
    }

    /// Checks every system in the cell at `axes`.
    pub(crate) fn check_systems_at(
        &self,
        axes: &Axes,
        product: Option<Bytes>,
    ) -> Result<(), FileError> {
        self.systems().try_for_each(|system| self.system_at(axes, system, product).map(|_| ()))
    }
}

impl SystemSpec {
    /// Returns the settings in which an axis may be filled in.
    pub(super) fn texts_of_virtual_time(&self) -> impl Iterator<Item = &Spanned<String>> {
        [&self.queue, &self.caqm].into_iter().flatten()
    }
}

/// Parses CAQM's settings with the reference kernel's names:
/// `ends=both,path=ask,rtt_standard=200us,…`.
fn caqm(text: &str) -> Result<CaqmHosts, String> {
    let mut hosts = CaqmHosts::default();
    for part in text.split(',').map(str::trim) {
        let Some((key, value)) = part.split_once('=') else {
            return Err(format!("`{part}`: write a setting of CAQM as in `alpha=8`"));
        };
        set(&mut hosts, key.trim(), value.trim())?;
    }
    hosts.validate().map_err(|error| error.to_string())?;
    Ok(hosts)
}

fn set(hosts: &mut CaqmHosts, key: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u32>().map_err(|_| format!("`{key}={value}` is no number"));
    let bytes = || {
        let size: Bytes = value.parse().map_err(|error| format!("{key}: {error}"))?;
        u32::try_from(size.count()).map_err(|_| format!("`{key}={value}` is too large"))
    };
    match key {
        "rtt_standard" => {
            let span: Span = value.parse().map_err(|error| format!("{key}: {error}"))?;
            hosts.settings.set_rtt_standard(span);
        }
        "loss" => {
            let law = CaqmSettings::LOSS_LAWS.iter().position(|law| *law == value);
            let law = law.ok_or_else(|| format!("`loss={value}`: it is announced or reference"))?;
            hosts.settings.loss_as_reference = law as u32;
        }
        "cc_type" => hosts.kind = u8::try_from(number()?).unwrap_or(u8::MAX),
        "tpid" => {
            let digits = value.strip_prefix("0x").and_then(|d| u16::from_str_radix(d, 16).ok());
            hosts.tpid = digits.ok_or_else(|| format!("`tpid={value}`: write it like 0x88a8"))?;
        }
        "ends" => {
            (hosts.sender, hosts.receiver) = match value {
                "both" => (true, true),
                "client" => (true, false),
                "server" => (false, true),
                "none" => (false, false),
                other => {
                    let hint = units::did_you_mean(other, ENDS);
                    return Err(format!("`ends={other}`{hint}: there are {}", ENDS.join(", ")));
                }
            }
        }
        "path" => {
            hosts.trusts_path = match value {
                "ask" => false,
                "trust" => true,
                other => return Err(format!("`path={other}`: there are ask, trust")),
            }
        }
        other => {
            let known = hosts.settings.parameters().map(|parameter| parameter.name);
            let Some(parameter) = hosts.settings.parameter_mut(other) else {
                let known: Vec<&str> = known.into_iter().chain(OF_HOSTS).collect();
                let hint = units::did_you_mean(other, known.iter().copied());
                let known = known.join(", ");
                return Err(format!("CAQM has no setting `{other}`{hint}; there are {known}"));
            };
            *parameter = if SIZES.contains(&other) { bytes()? } else { number()? };
        }
    }
    Ok(())
}

const ENDS: [&str; 4] = ["both", "client", "server", "none"];
/// Parameters of CAQM whose unit is bytes.
const SIZES: [&str; 4] = ["beta", "mtu_unit", "data_hint_unit", "ack_hint_unit"];
/// Keys of CAQM that are no parameters of [`CaqmSettings`].
const OF_HOSTS: [&str; 5] = ["loss", "cc_type", "tpid", "ends", "path"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caqm_settings_have_the_reference_kernels_names() {
        let all = "alpha=16,alpha_root=4,beta=1024B,min_cwnd=2,max_cwnd=500,mtu_unit=2048B,data_hint_unit=16B,ack_hint_unit=32B,\
                   rtt_standard=4ms,theta=0,loss=reference,cc_type=0,tpid=0x88b5,ends=client,path=trust";
        let hosts = caqm(all).unwrap();
        let settings = CaqmSettings {
            alpha: 16,
            alpha_root: 4,
            beta: 1024,
            min_cwnd: 2,
            max_cwnd: 500,
            mtu_unit: 2048,
            data_hint_unit: 16,
            ack_hint_unit: 32,
            rtt_standard_us: 4000,
            theta: 0,
            loss_as_reference: 1,
        };
        let expected = CaqmHosts {
            sender: true,
            receiver: false,
            trusts_path: true,
            settings,
            tpid: 0x88b5,
            kind: 0,
        };
        assert_eq!(hosts, expected);
    }

    #[test]
    fn caqm_settings_out_of_range_are_refused() {
        for (wrong, says) in [
            ("alpha=32768", "alpha is 32768: choose a value from 1 to 32767"),
            ("alhpa=8", "did you mean `alpha`?"),
            ("beta=1MB", "choose a value from 1 to 65536"),
            ("rtt_standard=2s", "choose a value from 1 to 1000000"),
            ("cc_type=8", "0 to 7"),
            ("tpid=0x0800", "another protocol has this number"),
            ("tpid=88a8", "write it like 0x88a8"),
            ("ends=sever", "did you mean `server`?"),
            ("path=none", "ask, trust"),
            ("fast", "as in `alpha=8`"),
        ] {
            let error = caqm(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
