//! The parts of a composition, and the lab file that they make.

use super::proof::Proof;
use link::Stream;
use std::fmt::{Display, Write as _};

/// The random numbers of one composition.
#[derive(Debug)]
pub(super) struct Dice(Stream);

impl Dice {
    pub(super) fn new(number: u64) -> Self {
        Self(Stream::new(number, "composition"))
    }

    /// Draws a value in which each order of magnitude is equally likely, with three digits.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        let value = low * (high / low).powf(self.0.unit());
        let scale = 10_f64.powf(2.0 - value.log10().floor());
        ((value * scale).round() / scale).clamp(low, high)
    }

    pub(super) fn whole(&mut self, low: u32, high: u32) -> u32 {
        low + (self.0.unit() * f64::from(high - low + 1)).floor() as u32
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.0.unit() < share
    }

    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[((self.0.unit() * all.len() as f64) as usize).min(all.len() - 1)]
    }
}

/// The path between the two hosts.
#[derive(Debug, Clone)]
pub(super) enum Path {
    Cable,
    Emulated {
        /// The rate, in Mbit/s.
        rate: f64,
        /// The round-trip time, in milliseconds.
        rtt: f64,
        queue: String,
        /// Further settings of each direction, as a lab file has them.
        forward: String,
        backward: String,
    },
}

impl Path {
    /// Builds an emulated path with a queue of `products` bandwidth-delay products.
    pub(super) fn new(rate: f64, rtt: f64, products: f64) -> Self {
        let bytes = rate * rtt * 125.0 * products;
        let queue = format!("droptail:{}B", (bytes as u64).max(LEAST_QUEUE));
        Self::Emulated { rate, rtt, queue, forward: String::new(), backward: String::new() }
    }

    pub(super) fn forward(mut self, settings: &str) -> Self {
        if let Self::Emulated { forward, .. } = &mut self {
            settings.clone_into(forward);
        }
        self
    }

    pub(super) fn backward(mut self, settings: &str) -> Self {
        if let Self::Emulated { backward, .. } = &mut self {
            settings.clone_into(backward);
        }
        self
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::Cable => ", a cable".to_owned(),
            Self::Emulated { rate, rtt, .. } => format!(", {rate} Mbit/s, {rtt} ms"),
        }
    }

    fn table(&self) -> String {
        let mut text = "[[link]]\nbetween = [\"sender\", \"receiver\"]\n".to_owned();
        match self {
            Self::Cable => text += "direct = true\n",
            Self::Emulated { rate, rtt, queue, forward, backward } => {
                let _ = writeln!(text, "rate = \"{rate}mbit\"\nrtt = \"{rtt}ms\"");
                let _ = writeln!(text, "queue = \"{queue}\"");
                for (way, settings) in [("forward", forward), ("backward", backward)] {
                    if !settings.is_empty() {
                        let _ = writeln!(text, "{way} = {{ {settings} }}");
                    }
                }
            }
        }
        text
    }
}

/// The right verdicts, and the bounds of the counts that show the fault at work.
#[derive(Debug, Clone, Default)]
pub(super) struct Truth {
    pub(super) expect: &'static str,
    pub(super) proof: Proof,
}

/// A case from which a lab file is made.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) path: Path,
    pub(super) truth: Truth,
    /// The truth about a sender that does not slow down when packets are lost.
    pub(super) paced: Option<Truth>,
    /// Keys of `[workload]` and the texts of their values.
    pub(super) keys: Vec<(&'static str, String)>,
    pub(super) traffic: &'static str,
    pub(super) details: String,
    /// Whether background traffic may run beside the traffic of the case.
    pub(super) takes_background: bool,
}

impl Draft {
    /// Drafts a bulk transfer over `path`.
    pub(super) fn bulk(path: Path, expect: &'static str, proof: Proof) -> Self {
        Self {
            path,
            truth: Truth { expect, proof },
            paced: None,
            keys: Vec::new(),
            traffic: "bulk",
            details: String::new(),
            takes_background: true,
        }
    }

    pub(super) fn paced(mut self, expect: &'static str, proof: Proof) -> Self {
        self.paced = Some(Truth { expect, proof });
        self
    }

    pub(super) fn key(mut self, name: &'static str, text: impl Into<String>) -> Self {
        self.keys.push((name, text.into()));
        self
    }

    /// Gives the sender the load of `weir doctor-load` with these flags.
    pub(super) fn sends(self, flags: impl Display) -> Self {
        self.key("sender", format!("exec $WEIR doctor-load send $RECEIVER:$PORT {flags}"))
    }

    /// Gives the receiver the load of `weir doctor-load` with these flags.
    pub(super) fn receives(self, flags: impl Display) -> Self {
        self.key("receiver", format!("exec $WEIR doctor-load receive $RECEIVER:$PORT {flags}"))
    }

    pub(super) fn traffic(mut self, traffic: &'static str) -> Self {
        self.traffic = traffic;
        self
    }

    pub(super) fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Excludes background traffic from the case.
    pub(super) fn alone(mut self) -> Self {
        self.takes_background = false;
        self
    }

    /// Adds background traffic to some of the cases that allow background traffic, and returns a
    /// description. The doctor is then asked only about the port of the case.
    pub(super) fn add_background(&mut self, dice: &mut Dice) -> Option<&'static str> {
        let Path::Emulated { rate, .. } = self.path else { return None };
        if !self.takes_background || !dice.chance(WITH_BACKGROUND) {
            return None;
        }
        let slow = rate * dice.between(0.01, 0.04);
        // The bytes at the receiver's interface include the background traffic.
        let other = 1.3 * slow.max(LEAST_BACKGROUND);
        for truth in [Some(&mut self.truth), self.paced.as_mut()].into_iter().flatten() {
            if let Some((_, high)) = &mut truth.proof.carried {
                *high += other;
            }
        }
        let (words, sends, receives) = match dice.whole(0, 2) {
            0 => ("a paced connection", format!("--chunk 4KiB --rate {slow:.3}mbit"), ""),
            1 => ("datagrams", format!("--udp --chunk 600B --rate {slow:.3}mbit"), "--udp"),
            _ => (
                "requests",
                "--chunk 300B --asks --pause 50ms".to_owned(),
                "--chunk 300B --answers",
            ),
        };
        let send = format!("$WEIR doctor-load send $RECEIVER:5202 {sends} &\n");
        let receive = format!("$WEIR doctor-load receive $RECEIVER:5202 {receives} &\n");
        self.before("sender", &send, "exec $WEIR doctor-load send $RECEIVER:$PORT");
        self.before("receiver", &receive, "exec $WEIR doctor-load receive $RECEIVER:$PORT");
        if !self.keys.iter().any(|(name, _)| *name == "ask") {
            self.keys.push(("ask", "port:5201".to_owned()));
        }
        Some(words)
    }

    /// Starts `command` before the load of the side `key`. `usual`: the load if the draft has no
    /// load on this side.
    fn before(&mut self, key: &'static str, command: &str, usual: &str) {
        match self.keys.iter_mut().find(|(name, _)| *name == key) {
            Some((_, text)) if text == "none" => *text = format!("{command}wait"),
            Some((_, text)) => *text = format!("{command}{text}"),
            None => self.keys.push((key, format!("{command}{usual}"))),
        }
    }

    pub(super) fn lab_file(&self) -> String {
        let mut text = "name = \"composition\"\nhosts = [\"sender\", \"receiver\"]\n".to_owned();
        text += &self.path.table();
        text += "[workload]\nkind = \"diagnose\"\nfrom = \"sender\"\nto = \"receiver\"\n";
        let _ = writeln!(text, "expect = \"{}\"", self.truth.expect);
        if let Some(paced) = &self.paced {
            let _ = writeln!(text, "expect-paced = \"{}\"", paced.expect);
        }
        for (name, value) in &self.keys {
            // Add no `exec` to a load of one command, because the scene adds `exec`.
            let is_one = !value.contains('\n');
            let value = value.strip_prefix("exec ").filter(|_| is_one).unwrap_or(value);
            let is_count = value.bytes().all(|byte| byte.is_ascii_digit());
            let _ = match is_count {
                true => writeln!(text, "{name} = {value}"),
                false => writeln!(text, "{name} = '''\n{value}'''"),
            };
        }
        text + "[[system]]\nname = \"doctor\"\nkind = \"doctor\"\n\
                [form.full]\nrepeats = 6\nduration = \"2s\"\n"
    }
}

/// Minimum queue size in bytes. A shorter queue drops most of an initial window.
const LEAST_QUEUE: u64 = 15_000;
const WITH_BACKGROUND: f64 = 0.4;
/// The rate in Mbit/s of the slowest background traffic, which is the requests.
const LEAST_BACKGROUND: f64 = 0.1;
