use crate::random::Stream;
use crate::text::{Term, name_and_terms, terms};
use crate::{LinkError, TraceError};
use std::sync::Arc;
use units::{Share, Span, Time};

/// Decides which packets the medium loses after serialisation.
///
/// Written `1%` (each packet alone), `gilbert:p=1%,r=30%,h=0%,k=100%,every=1ms` (see
/// [`GilbertElliott`]), `trace:00100` (repeated without end), or `none`.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// Each packet is lost with this probability, independently of all other packets.
    Bernoulli(Share),
    /// Losses come in bursts: a Markov chain changes between a good and a bad state.
    GilbertElliott(GilbertElliott),
    /// Each packet takes the next entry of a recorded sequence.
    Trace(Arc<LossTrace>),
}

/// A loss model with a good and a bad state (Gilbert 1960, Elliott 1963; in the notation of
/// Hasslinger and Hohlfeld 2008 and of netem's `gemodel`).
///
/// Without `every` the state may change after each packet, as in the kernel (`loss_gilb_ell` in
/// net/sched/sch_netem.c). If a sender's only packet in flight is a retransmission, the chain then
/// stays in the bad state for long: each retransmission is one step, and timeouts grow between the
/// steps. With `every` the state may change at each multiple of `every`, even if no packet passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// The probability of changing from good to bad.
    pub p: Share,
    /// The probability of changing from bad to good. The default is `1 - p`, as in netem; losses
    /// are then independent.
    pub r: Share,
    /// The probability that a packet survives in the bad state. The default is 0 %.
    pub h: Share,
    /// The probability that a packet survives in the good state. The default is 100 %.
    pub k: Share,
    /// The time between two changes of the state. `None`: the state changes with each packet.
    pub every: Option<Span>,
}

/// A recorded or artificial sequence of losses, repeated without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossTrace(Box<[bool]>);

impl Loss {
    /// No packet is lost.
    pub const NONE: Self = Self::Bernoulli(Share::ZERO);

    /// Checks the model: the `every` of a Gilbert-Elliott model must be above 0.
    pub fn validate(&self) -> Result<(), LinkError> {
        match self {
            Self::GilbertElliott(GilbertElliott { every: Some(Span::ZERO), .. }) => {
                Err(LinkError::invalid("gilbert", "needs an `every` above 0: write `every=1ms`"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the long-term share of packets lost.
    pub fn mean(&self) -> Share {
        match self {
            Self::Bernoulli(share) => *share,
            Self::GilbertElliott(model) => model.mean(),
            Self::Trace(trace) => {
                let lost = trace.0.iter().filter(|lost| **lost).count();
                Share::new(lost as f64 / trace.0.len() as f64).unwrap_or_default()
            }
        }
    }
}

impl GilbertElliott {
    /// Returns the long-term share of the bad state.
    fn bad(&self) -> f64 {
        let (p, r) = (self.p.fraction(), self.r.fraction());
        if p + r == 0.0 { 0.0 } else { p / (p + r) }
    }

    /// Returns the probability of the bad state `steps` changes after a known state.
    fn bad_after(&self, bad: bool, steps: u64) -> Share {
        let (p, r) = (self.p.fraction(), self.r.fraction());
        let known = if bad { 1.0 } else { 0.0 };
        if p + r == 0.0 {
            return Share::new(known).unwrap_or_default();
        }
        let steps = i32::try_from(steps).unwrap_or(i32::MAX);
        let chance = self.bad() + (known - self.bad()) * (1.0 - p - r).powi(steps);
        Share::new(chance.clamp(0.0, 1.0)).unwrap_or_default()
    }

    fn mean(&self) -> Share {
        let bad = self.bad();
        let lost = bad * (1.0 - self.h.fraction()) + (1.0 - bad) * (1.0 - self.k.fraction());
        Share::new(lost.clamp(0.0, 1.0)).unwrap_or_default()
    }
}

impl LossTrace {
    /// Parses 0 (kept) and 1 (lost). Spaces, commas and line ends may separate the numbers.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let mut losses = Vec::new();
        for (index, line) in text.lines().enumerate() {
            for found in line.chars() {
                match found {
                    '0' => losses.push(false),
                    '1' => losses.push(true),
                    ',' => {}
                    space if space.is_whitespace() => {}
                    _ => {
                        return Err(TraceError::NotALoss { line: index + 1, found });
                    }
                }
            }
        }
        if losses.is_empty() {
            return Err(TraceError::NoLosses);
        }
        Ok(Self(losses.into_boxed_slice()))
    }
}

impl Default for Loss {
    fn default() -> Self {
        Self::NONE
    }
}

impl std::str::FromStr for Loss {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let (name, rest) = name_and_terms(text);
        match name {
            "none" => Ok(Self::NONE),
            "gilbert" => Ok(Self::GilbertElliott(gilbert(rest)?)),
            "trace" => Ok(Self::Trace(Arc::new(LossTrace::parse(rest)?))),
            share if share.starts_with(|c: char| c.is_ascii_digit() || "-+.".contains(c)) => {
                Ok(Self::Bernoulli(share.parse()?))
            }
            other => Err(LinkError::UnknownForm {
                what: "loss",
                found: text.to_owned(),
                hint: units::did_you_mean(other, ["none", "gilbert", "trace"]),
                known: "`1%`, `gilbert:p=1%,r=30%,every=1ms`, `trace:00100` or `none`",
            }),
        }
    }
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // A share that is too small for the printed digits is also printed as `none`.
            Self::Bernoulli(share) => match share.to_string().as_str() {
                "0%" => f.pad("none"),
                text => f.pad(text),
            },
            Self::GilbertElliott(GilbertElliott { p, r, h, k, every }) => {
                let every = every.map_or_else(String::new, |every| format!(",every={every}"));
                f.pad(&format!("gilbert:p={p},r={r},h={h},k={k}{every}"))
            }
            Self::Trace(trace) => {
                let digits = trace.0.iter().map(|lost| if *lost { '1' } else { '0' });
                f.pad(&format!("trace:{}", digits.collect::<String>()))
            }
        }
    }
}

units::as_text!(Loss, "a loss such as \"1%\"");

#[derive(Debug)]
pub(crate) struct LossProcess {
    model: Loss,
    random: Stream,
    bad: bool,
    /// The number of the interval of `every` to which `bad` belongs.
    interval: u64,
    next: usize,
}

impl LossProcess {
    pub(crate) fn new(model: &Loss, seed: u64) -> Self {
        let random = Stream::new(seed, "loss");
        Self { model: model.clone(), random, bad: false, interval: 0, next: 0 }
    }

    /// Changes the model. The random stream continues. The state continues if the new model has
    /// this state.
    pub(crate) fn reconfigure(&mut self, model: &Loss) {
        if self.model != *model {
            self.next = 0;
            self.bad &= matches!(model, Loss::GilbertElliott(_));
            if self.every() != every_of(model) {
                self.interval = 0;
            }
            self.model = model.clone();
        }
    }

    fn every(&self) -> Option<Span> {
        every_of(&self.model)
    }

    /// Whether the packet that departs at `now` is lost. `now` never decreases.
    #[inline]
    pub(crate) fn takes_next(&mut self, now: Time) -> bool {
        match &self.model {
            Loss::Bernoulli(share) if share.is_zero() => false,
            Loss::Bernoulli(share) => self.random.happens(*share),
            Loss::GilbertElliott(model @ GilbertElliott { every: Some(every), .. }) => {
                let interval = now.nanos() / every.nanos().max(1);
                let steps = interval.saturating_sub(self.interval);
                self.interval = interval;
                if steps > 0 {
                    self.bad = self.random.happens(model.bad_after(self.bad, steps));
                }
                !self.random.happens(if self.bad { model.h } else { model.k })
            }
            Loss::GilbertElliott(model) => {
                let (kept, change) = if self.bad { (model.h, model.r) } else { (model.k, model.p) };
                let lost = !self.random.happens(kept);
                self.bad ^= self.random.happens(change);
                lost
            }
            Loss::Trace(trace) => {
                let lost = trace.0[self.next];
                self.next = (self.next + 1) % trace.0.len();
                lost
            }
        }
    }
}

fn every_of(model: &Loss) -> Option<Span> {
    match model {
        Loss::GilbertElliott(model) => model.every,
        Loss::Bernoulli(_) | Loss::Trace(_) => None,
    }
}

fn gilbert(text: &str) -> Result<GilbertElliott, LinkError> {
    let (mut p, mut r, mut h, mut k) = (None, None, Share::ZERO, Share::ONE);
    let mut every = None;
    for term in terms(text) {
        match term {
            Term::Pair("p", value) => p = Some(value.parse::<Share>()?),
            Term::Pair("r", value) => r = Some(value.parse()?),
            Term::Pair("h", value) => h = value.parse()?,
            Term::Pair("k", value) => k = value.parse()?,
            Term::Pair("every", value) => every = Some(value.parse::<Span>()?),
            other => return Err(other.unknown("gilbert", &["p=", "r=", "h=", "k=", "every="])),
        }
    }
    let p = p.ok_or_else(|| {
        LinkError::invalid(
            "gilbert",
            "has no `p`, the chance to go from good to bad: write for example \
             `gilbert:p=1%,r=30%,every=1ms`",
        )
    })?;
    let r = match r {
        Some(r) => r,
        // Convert through text, so that the printed value parses to the same number.
        None => Share::new(1.0 - p.fraction()).unwrap_or_default().to_string().parse()?,
    };
    Ok(GilbertElliott { p, r, h, k, every })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_beyond_the_printed_digits_prints_as_none() {
        for text in ["0%", "0", "0.00000000000001%"] {
            let loss: Loss = text.parse().unwrap();
            assert_eq!(loss.to_string(), "none", "{text}");
        }
        assert_eq!("0.000001%".parse::<Loss>().unwrap().to_string(), "0.000001%");
    }

    fn losses(text: &str, packets: usize) -> Vec<bool> {
        let mut process = LossProcess::new(&text.parse().unwrap(), 11);
        (0..packets).map(|_| process.takes_next(Time::ZERO)).collect()
    }

    /// Returns whether each of `packets` packets is lost, if they depart every `gap`.
    fn losses_every(text: &str, gap: Span, packets: u64) -> Vec<bool> {
        let mut process = LossProcess::new(&text.parse().unwrap(), 11);
        (0..packets).map(|packet| process.takes_next(Time::ZERO + gap * packet)).collect()
    }

    fn share(of: impl Iterator<Item = bool>) -> (f64, f64) {
        let all: Vec<bool> = of.collect();
        let count = all.len() as f64;
        (all.iter().filter(|x| **x).count() as f64 / count, count)
    }

    /// Whether `share` lies within the 99.9 % interval of `count` independent draws.
    fn within(share: f64, expected: f64, count: f64) -> bool {
        (share - expected).abs() <= 3.2905 * (expected * (1.0 - expected) / count).sqrt()
    }

    #[test]
    fn bernoulli_loss_has_the_configured_share() {
        for (text, expected) in [("0.1%", 0.001), ("1%", 0.01), ("5%", 0.05), ("50%", 0.5)] {
            let (lost, count) = share(losses(text, 1_000_000).into_iter());
            assert!(within(lost, expected, count), "{text}: {lost}");
        }
        assert!(losses("100%", 1000).into_iter().all(|lost| lost));
        assert!(!losses("0", 1000).into_iter().any(|lost| lost));
    }

    /// With h = 0 and k = 1 a loss shows the bad state, so both transitions can be counted.
    #[test]
    fn gilbert_changes_state_at_the_configured_rates() {
        let lost = losses("gilbert:p=1%,r=30%", 1_000_000);
        let after = |state: bool| {
            lost.windows(2).filter(move |pair| pair[0] == state).map(move |pair| pair[1] != state)
        };
        let (p, in_good) = share(after(false));
        let (r, in_bad) = share(after(true));
        assert!(within(p, 0.01, in_good), "p {p}");
        assert!(within(r, 0.3, in_bad), "r {r}");
    }

    /// The mean of a two-state chain has the variance of independent draws times (2 - p - r) / (p +
    /// r), for the part that the state decides. The test applies this factor to the whole variance,
    /// as a bound.
    #[test]
    fn gilbert_elliott_loss_has_its_mean_share() {
        let model: Loss = "gilbert:p=2%,r=20%,h=30%,k=99%".parse().unwrap();
        let expected = model.mean().fraction();
        assert!((expected - (0.7 + 10.0 * 0.01) / 11.0).abs() < 1e-12);
        let (lost, count) = share(losses("gilbert:p=2%,r=20%,h=30%,k=99%", 1_000_000).into_iter());
        // A chain that never leaves its bad state loses packets at the bad state's rate.
        let forever: Loss = "gilbert:p=2%,r=0%,h=30%".parse().unwrap();
        assert!((forever.mean().fraction() - 0.7).abs() < 1e-12);
        let correlation = (2.0 - 0.22) / 0.22;
        assert!(within(lost, expected, count / correlation), "{lost} of {expected}");
    }

    #[test]
    fn the_key_every_changes_the_loss_state_while_no_packet_passes() {
        let text = "gilbert:p=1%,r=10%,every=1ms";
        let mean = 1.0 / 11.0;
        // Packets of one interval share the state of the interval.
        let close = losses_every(text, Span::from_micros(100), 1_000_000);
        assert!(close.chunks(10).all(|interval| interval.iter().all(|lost| *lost == interval[0])));
        let (lost, count) = share(close.chunks(10).map(|interval| interval[0]));
        assert!(within(lost, mean, count * 0.11 / 1.89), "{lost}");
        let after = |gap: Span| {
            let lost = losses_every(text, gap, 1_000_000);
            let pairs: Vec<bool> =
                lost.windows(2).filter(|pair| pair[0]).map(|pair| pair[1]).collect();
            share(pairs.into_iter())
        };
        // A millisecond later the state is still bad with 90 %; half a second later the state
        // is independent of the first loss.
        let (again, count) = after(Span::from_millis(1));
        assert!(within(again, 0.9, count), "{again}");
        let (again, count) = after(Span::from_millis(500));
        assert!(within(again, mean, count), "{again}");
    }

    #[test]
    fn a_loss_model_with_the_key_every_prints_as_it_parses() {
        let loss: Loss = "gilbert:p=1%,r=10%,every=1ms".parse().unwrap();
        assert_eq!(loss.to_string(), "gilbert:p=1%,r=10%,h=0%,k=100%,every=1ms");
        assert_eq!(loss.to_string().parse::<Loss>().unwrap(), loss);
        assert!((loss.mean().fraction() - 1.0 / 11.0).abs() < 1e-12);
        let never = "gilbert:p=1%,every=0ms".parse::<Loss>().unwrap();
        assert!(never.validate().unwrap_err().to_string().contains("`every` above 0"));
        assert!("gilbert:p=1%,every=x".parse::<Loss>().is_err());
    }

    #[test]
    fn a_loss_trace_repeats_without_end() {
        let lost = losses("trace:001", 6);
        assert_eq!(lost, [false, false, true, false, false, true]);
        let mean = "trace:0011".parse::<Loss>().unwrap().mean();
        assert_eq!(mean.fraction(), 0.5);
    }

    #[test]
    fn the_error_for_an_invalid_loss_names_a_valid_syntax() {
        let message = |text: &str| text.parse::<Loss>().unwrap_err().to_string();
        assert!(message("140%").contains("from 0% to 100%"), "{}", message("140%"));
        assert!(message("gilbrt:p=1%").contains("did you mean `gilbert`?"));
        assert!(message("gilbert:q=1%").contains("p=, r=, h=, k=, every="));
        assert!(message("gilbert:r=1%").contains("has no `p`"));
        assert!(message("trace:0012").contains("line 1 of the loss trace has `2`"));
        assert!(message("trace:").contains("empty"));
        assert_eq!(LossTrace::parse("0 1\n0,x"), Err(TraceError::NotALoss { line: 2, found: 'x' }));
    }

    /// With p = r = 100 % the state changes at each multiple of `every`.
    #[test]
    fn only_a_change_of_the_key_every_restarts_the_loss_state_interval() {
        let of = |every: &str, more: &str| -> Loss {
            format!("gilbert:p=100%,r=100%{more},every={every}").parse().unwrap()
        };
        let lost = |process: &mut LossProcess, millis| {
            process.takes_next(Time::ZERO + Span::from_millis(millis))
        };
        let mut process = LossProcess::new(&of("1ms", ""), 11);
        assert_eq!([999, 1000].map(|at| lost(&mut process, at)), [true, false]);
        process.reconfigure(&of("10ms", ""));
        let found = [1000, 1009, 1010, 1019, 1020].map(|at| lost(&mut process, at));
        assert_eq!(found, [false, false, true, true, false]);
        let mut process = LossProcess::new(&of("1ms", ""), 11);
        assert!(lost(&mut process, 1001));
        process.reconfigure(&of("1ms", ",k=100%,h=0.000001%"));
        assert_eq!([1001, 1002].map(|at| lost(&mut process, at)), [true, false]);
    }
}
