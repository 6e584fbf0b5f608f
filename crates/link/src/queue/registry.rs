use super::{Discipline, Limit, Queued};
use crate::text::name_and_terms;
use crate::{LinkError, LinkStats, Packet};
use std::sync::LazyLock;
use units::{Bytes, Rate, Span, Time};

/// Declares the disciplines. A line names the file, the type, the type of its settings, and the
/// name that users write.
macro_rules! disciplines {
    ($($(#[$doc:meta])* $file:ident::$queue:ident($config:ident) $name:literal;)*) => {
        $(pub use super::$file::{$queue, $config};)*

        /// The queueing discipline: which packets wait, for how long, and which are dropped or
        /// marked.
        ///
        /// Written as a name, then settings behind a colon. Settings left out have the defaults
        /// shown here. A limit counts bytes (`256KiB`) or packets (`100p`) and may be written
        /// without `limit=`.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub enum QueueConfig { $($(#[$doc])* $queue($config),)* }

        impl QueueConfig {
            /// Checks that a queue can have these settings. The error says what to change.
            pub fn validate(&self) -> Result<(), LinkError> {
                match self { $(Self::$queue(config) => config.validate(),)* }
            }

            /// Returns the capacity of the queue. All flows of FQ-CoDel share the capacity.
            pub fn limit(&self) -> Limit {
                match self { $(Self::$queue(config) => config.limit,)* }
            }

            /// Returns the queue on a path with this rate and round trip. Settings that follow from
            /// the path get their values, unless they are set.
            pub fn on_path(self, rate: Option<Rate>, round_trip: Span) -> Self {
                match self {
                    Self::Caqm(config) => Self::Caqm(config.on_path(rate, round_trip)),
                    other => other,
                }
            }

            /// Returns a warning about a setting that does not suit a path with this round trip.
            pub fn warning(&self, round_trip: Span) -> Option<String> {
                match self {
                    Self::Caqm(config) => config.warning(round_trip),
                    _ => None,
                }
            }

            /// Returns the name of each discipline.
            pub fn names() -> &'static [&'static str] {
                NAMES
            }

            /// Returns descriptions that [`Self::from_str`](std::str::FromStr) parses, at least one
            /// per discipline.
            pub fn examples() -> impl Iterator<Item = &'static str> {
                [$($config::EXAMPLES,)*].into_iter().flatten().copied()
            }

            fn parse(name: &str, terms: &str) -> Option<Result<Self, LinkError>> {
                match name {
                    $($name => Some($config::parse(terms).map(Self::$queue)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for QueueConfig {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self { $(Self::$queue(config) => f.pad(&format!("{}:{config}", $name)),)* }
            }
        }

        const NAMES: &[&str] = &[$($name,)*];

        #[derive(Debug)]
        pub(super) enum Kind<P: Packet> { $($queue($queue<P>),)* }

        impl<P: Packet> Kind<P> {
            pub(super) fn new(config: &QueueConfig, pace: Option<Rate>, seed: u64) -> Self {
                match config {
                    $(QueueConfig::$queue(config) => Self::$queue($queue::new(config, pace, seed)),)*
                }
            }

            /// Returns false if `config` is for another discipline.
            pub(super) fn retune(&mut self, config: &QueueConfig, pace: Option<Rate>) -> bool {
                match (self, config) {
                    $((Self::$queue(queue), QueueConfig::$queue(config)) => queue.retune(config, pace),)*
                    _ => return false,
                }
                true
            }

            #[inline]
            pub(super) fn enqueue(&mut self, now: Time, item: Queued<P>, stats: &mut LinkStats) {
                match self { $(Self::$queue(queue) => queue.enqueue(now, item, stats),)* }
            }

            pub(super) fn admit(&mut self, item: Queued<P>, stats: &mut LinkStats) {
                match self { $(Self::$queue(queue) => queue.admit(item, stats),)* }
            }

            #[inline]
            pub(super) fn dequeue(&mut self, now: Time, stats: &mut LinkStats) -> Option<Queued<P>> {
                match self { $(Self::$queue(queue) => queue.dequeue(now, stats),)* }
            }

            #[inline]
            pub(super) fn packets(&self) -> usize {
                match self { $(Self::$queue(queue) => queue.packets(),)* }
            }

            #[inline]
            pub(super) fn bytes(&self) -> Bytes {
                match self { $(Self::$queue(queue) => queue.bytes(),)* }
            }

            pub(super) fn for_each(&self, see: &mut dyn FnMut(&P)) {
                match self { $(Self::$queue(queue) => queue.for_each(see),)* }
            }

            pub(super) fn take_all(&mut self) -> Vec<Queued<P>> {
                match self { $(Self::$queue(queue) => queue.take_all(),)* }
            }
        }
    };
}

disciplines! {
    /// `droptail:10000p`
    droptail::DropTail(DropTailConfig) "droptail";
    /// `headdrop:10000p`
    headdrop::HeadDrop(HeadDropConfig) "headdrop";
    /// `red:limit=1000p,min=83p,max=250p,p=10%,weight=0.2%`, flags `gentle`, `ecn`, `step`
    red::Red(RedConfig) "red";
    /// `codel:limit=1000p,target=5ms,interval=100ms`, flag `ecn`
    codel::CoDel(CoDelConfig) "codel";
    /// `fq_codel:limit=10240p,target=5ms,interval=100ms,flows=1024,quantum=1514B`, flag `ecn`
    fq_codel::FqCoDel(FqCoDelConfig) "fq_codel";
    /// `pie:limit=1000p,target=15ms,update=15ms,burst=150ms`, flag `ecn`
    pie::Pie(PieConfig) "pie";
    /// `caqm:143KB`, `caqm:target=143KB,limit=10000p,lambda=50%,p=25%,beta=512B`
    caqm::Caqm(CaqmConfig) "caqm";
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self::DropTail(DropTailConfig::default())
    }
}

impl std::str::FromStr for QueueConfig {
    type Err = LinkError;
    fn from_str(text: &str) -> Result<Self, LinkError> {
        let (name, terms) = name_and_terms(text);
        let config = Self::parse(name, terms).ok_or_else(|| LinkError::UnknownForm {
            what: "queue",
            found: text.to_owned(),
            hint: units::did_you_mean(name, NAMES.iter().copied()),
            known: &KNOWN,
        })??;
        config.validate()?;
        Ok(config)
    }
}

units::as_text!(QueueConfig, "a queue such as \"droptail:256KiB\"");

static KNOWN: LazyLock<String> = LazyLock::new(|| {
    let mut all: Vec<_> = QueueConfig::examples().map(|text| format!("`{text}`")).collect();
    let last = all.pop().unwrap_or_default();
    format!("{} or {last}", all.join(", "))
});
