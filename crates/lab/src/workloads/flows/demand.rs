//! The applications' demand (its amount and its times), and other traffic on the link.

use crate::model::file::Part;
use sim::Sizes;
use units::{Bytes, Rate, Share, Span};

/// Limits on an application's sending in a flow without end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Demand {
    /// The application always has more to send.
    Bulk,
    /// The application writes at this rate during its on times. Without an off time the application
    /// is always on.
    OnOff { rate: Part, on: Span, off: Span, random: bool },
    /// The application writes one piece at a time.
    Pieces { size: Bytes, every: Span },
}

/// The arrivals of independent flows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Arrivals {
    /// A Poisson process that demands this share of the link on average.
    Load(Share),
    /// A Poisson process with this many arrivals per second.
    PerSecond(f64),
    Every(Span),
}

/// UDP that sends at its rate and never slows down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cross {
    pub(super) rate: Part,
    pub(super) poisson: bool,
}

impl Arrivals {
    /// Returns the mean time between two arrivals on a link of this rate.
    pub(super) fn mean_gap(self, sizes: &Sizes, rate: Rate) -> Span {
        let per_second = match self {
            Self::Every(span) => return span,
            Self::PerSecond(rate) => rate,
            Self::Load(share) => {
                let bits = rate.mbit_per_second() * 1e6 * share.fraction();
                bits / (sizes.mean().count() as f64 * 8.0)
            }
        };
        Span::from_secs_f64(1.0 / per_second.max(f64::MIN_POSITIVE))
    }
}

impl Demand {
    /// Parses a demand: `bulk`, `50%`, `5mbit,on=200ms,off=1s,random` or `64KB every 100ms`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text == "bulk" {
            return Ok(Self::Bulk);
        }
        if let Some((size, every)) = text.split_once(" every ") {
            let size: Bytes = size.trim().parse().map_err(|error| format!("{error}"))?;
            let every: Span = every.trim().parse().map_err(|error| format!("{error}"))?;
            if size == Bytes::ZERO || every < SHORTEST {
                return Err(format!("`{text}`: give a size above 0 and at least {SHORTEST}"));
            }
            return Ok(Self::Pieces { size, every });
        }
        let mut parts = text.split(',').map(str::trim);
        let rate = parts.next().unwrap_or_default().parse().map_err(|error: String| {
            format!(
                "{error}; a demand is written `bulk`, `50%`, `5mbit,on=1s,off=1s,random` or \
                 `64KB every 100ms`"
            )
        })?;
        let (mut on, mut off, mut random) = (None, None, false);
        for part in parts {
            let span = |text: &str| text.trim().parse::<Span>().map_err(|error| format!("{error}"));
            match part.split_once('=') {
                Some(("on", text)) => on = Some(span(text)?),
                Some(("off", text)) => off = Some(span(text)?),
                None if part == "random" => random = true,
                _ => {
                    let name = part.split('=').next().unwrap_or(part);
                    let hint = units::did_you_mean(name, ["on", "off", "random"]);
                    return Err(format!(
                        "`{name}` is no setting of a demand{hint}: it takes on=1s, off=1s and random"
                    ));
                }
            }
        }
        match (on, off) {
            (None, None) if random => {
                Err("`random` needs the mean times: add on=1s,off=1s".to_owned())
            }
            (None, None) => Ok(Self::OnOff { rate, on: ALWAYS, off: Span::ZERO, random: false }),
            (Some(on), Some(off)) if on >= SHORTEST && off >= SHORTEST => {
                Ok(Self::OnOff { rate, on, off, random })
            }
            (Some(_), Some(_)) => Err(format!("`on` and `off` are at least {SHORTEST}")),
            _ => Err("`on` and `off` belong together: add the other".to_owned()),
        }
    }
}

impl Arrivals {
    /// Parses arrivals of flows: `none`, `60%`, `20/s` or `every 50ms`.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let unclear = || {
            format!(
                "`{text}` is not a kind of arrivals: write `60%`, `20/s`, `every 50ms` or `none`"
            )
        };
        let arrivals = if text == "none" {
            return Ok(None);
        } else if let Some(every) = text.strip_prefix("every ") {
            Self::Every(every.trim().parse().map_err(|error| format!("{error}"))?)
        } else if let Some(rate) = text.strip_suffix("/s") {
            Self::PerSecond(rate.trim().parse().map_err(|_| unclear())?)
        } else if text.ends_with('%') {
            Self::Load(text.parse().map_err(|error| format!("{error}"))?)
        } else {
            return Err(unclear());
        };
        let possible = match arrivals {
            Self::Load(share) => !share.is_zero(),
            Self::PerSecond(rate) => rate.is_finite() && (0.001..=1e6).contains(&rate),
            Self::Every(span) => span >= Span::from_micros(1),
        };
        if possible { Ok(Some(arrivals)) } else { Err(unclear()) }
    }
}

impl Cross {
    /// Parses cross traffic: `none`, `30%` or `5mbit,poisson`.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        if text == "none" {
            return Ok(None);
        }
        let (rate, rest) = text.split_once(',').unwrap_or((text, ""));
        let poisson = match rest.trim() {
            "" => false,
            "poisson" => true,
            other => {
                let hint = units::did_you_mean(other, ["poisson"]);
                return Err(format!(
                    "`{other}` is no setting of cross traffic{hint}: it takes poisson"
                ));
            }
        };
        Ok(Some(Self { rate: rate.parse()?, poisson }))
    }
}

/// Parses flow sizes: `endless`, `640KB`, `web-search` or `10KB 50%, 100KB 90%, 1MB 100%`.
pub(super) fn sizes(text: &str) -> Result<Option<Sizes>, String> {
    match text {
        "endless" => return Ok(None),
        "web-search" => return Ok(Some(web_search())),
        _ => {}
    }
    if !text.contains('%') {
        return match text.parse::<Bytes>() {
            Ok(Bytes::ZERO) => Err("a flow must carry something".to_owned()),
            Ok(size) => Ok(Some(Sizes::Fixed(size))),
            Err(error) => {
                let hint = units::did_you_mean(text, ["endless", "web-search"]);
                Err(format!("{error}; the named sizes are `web-search` and `endless`{hint}"))
            }
        };
    }
    let mut points: Vec<(Bytes, f64)> = Vec::new();
    for point in text.split(',').map(str::trim) {
        let Some((size, share)) = point.split_once(' ') else {
            return Err(format!(
                "`{point}`: write a size and the share of flows up to it: 10KB 50%"
            ));
        };
        let size: Bytes = size.trim().parse().map_err(|error| format!("{error}"))?;
        let share: Share = share.trim().parse().map_err(|error| format!("{error}"))?;
        let after = |(before, part): &(Bytes, f64)| size > *before && share.fraction() > *part;
        if size == Bytes::ZERO || !points.last().is_none_or(after) {
            return Err(format!("`{point}`: sizes and shares rise from point to point"));
        }
        points.push((size, share.fraction()));
    }
    match points.last() {
        Some((_, share)) if (share - 1.0).abs() < 1e-9 => Ok(Some(Sizes::Distribution(points))),
        _ => Err(format!("`{text}`: the last share is 100%")),
    }
}

/// Returns the web search workload of Alizadeh et al., "Data Center TCP", SIGCOMM 2010, at the
/// points that pFabric (SIGCOMM 2013) uses. The unit is a packet of 1460 bytes. Half of the flows
/// are below 80 KB, and a tenth of the flows carries most of the bytes.
fn web_search() -> Sizes {
    const PACKETS: [(u64, f64); 11] = [
        (6, 0.15),
        (13, 0.2),
        (19, 0.3),
        (33, 0.4),
        (53, 0.53),
        (133, 0.6),
        (667, 0.7),
        (1333, 0.8),
        (3333, 0.9),
        (6667, 0.97),
        (20_000, 1.0),
    ];
    let points = PACKETS.map(|(packets, share)| (Bytes::new(packets * 1460), share));
    Sizes::Distribution(points.to_vec())
}

const SHORTEST: Span = Span::from_micros(10);
/// A time longer than any lab may last.
const ALWAYS: Span = Span::from_secs(1_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_are_parsed() {
        assert_eq!(Demand::parse("bulk"), Ok(Demand::Bulk));
        let rate = Part::Rate(Rate::from_mbit(5));
        let (on, off) = (Span::from_secs(1), Span::from_millis(500));
        let read = Demand::parse("5mbit,on=1s,off=500ms,random");
        assert_eq!(read, Ok(Demand::OnOff { rate, on, off, random: true }));
        let read = Demand::parse("64KB every 100ms");
        let (size, every) = (Bytes::new(64_000), Span::from_millis(100));
        assert_eq!(read, Ok(Demand::Pieces { size, every }));
        let wrong = |text| Demand::parse(text).unwrap_err();
        assert!(wrong("5mbit,onn=1s").contains("did you mean `on`?"));
        assert!(wrong("5mbit,on=1s").contains("belong together"));
        assert!(wrong("5mbit,random").contains("add on=1s,off=1s"));
        assert!(wrong("blk").contains("a demand is written"));
    }

    #[test]
    fn arrivals_and_cross_traffic_are_parsed() {
        assert_eq!(Arrivals::parse("none"), Ok(None));
        assert_eq!(Arrivals::parse("20/s"), Ok(Some(Arrivals::PerSecond(20.0))));
        assert_eq!(Arrivals::parse("60%"), Ok(Some(Arrivals::Load(Share::new(0.6).unwrap()))));
        let every = Arrivals::Every(Span::from_millis(50));
        assert_eq!(Arrivals::parse("every 50ms"), Ok(Some(every)));
        for wrong in ["0%", "-1/s", "often", "x/s"] {
            assert!(Arrivals::parse(wrong).unwrap_err().contains("write `60%`"), "{wrong}");
        }
        let cross = Cross::parse("30%,poisson").unwrap().unwrap();
        assert!(cross.poisson);
        assert!(Cross::parse("30%,poison").unwrap_err().contains("did you mean `poisson`?"));
    }

    #[test]
    fn a_load_sets_the_mean_gap_between_flows() {
        let half = Arrivals::Load(Share::new(0.5).unwrap());
        let sizes = Sizes::Fixed(Bytes::new(125_000));
        // Each flow carries one megabit, so five flows per second fill half of a 10 Mbit/s link.
        assert_eq!(half.mean_gap(&sizes, Rate::from_mbit(10)), Span::from_millis(200));
        assert_eq!(
            Arrivals::PerSecond(4.0).mean_gap(&sizes, Rate::default()),
            Span::from_millis(250)
        );
    }

    #[test]
    fn flow_sizes_are_parsed() {
        assert_eq!(sizes("endless"), Ok(None));
        assert_eq!(sizes("64KB"), Ok(Some(Sizes::Fixed(Bytes::new(64_000)))));
        let Ok(Some(Sizes::Distribution(points))) = sizes("10KB 50%, 1MB 100%") else { panic!() };
        assert_eq!(points, [(Bytes::new(10_000), 0.5), (Bytes::new(1_000_000), 1.0)]);
        let mean = sizes("web-search").unwrap().unwrap().mean().count();
        assert!((1_500_000..1_800_000).contains(&mean), "{mean}");
        assert!(sizes("10KB 50%").unwrap_err().contains("the last share is 100%"));
        assert!(sizes("10KB 50%, 1KB 100%").unwrap_err().contains("rise"));
        assert!(sizes("websearch").unwrap_err().contains("did you mean `web-search`?"));
        assert!(sizes("0B").unwrap_err().contains("must carry something"));
    }
}
