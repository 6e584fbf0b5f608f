//! The network around the link of a `flows` workload.

use super::locate::FileError;
use super::schema::{Document, NumberOrText};
use link::Capacity;
use results::Axes;
use settings::table;
use toml::Spanned;
use units::{Rate, Span};

table! {
    /// The table `[topology]`. Each bottleneck of the topology has the settings of the lab's link.
    #[derive(Debug, Clone, Default)]
    pub struct TopologySpec {
        pub shape: Option<Spanned<String>>,
        /// Round-trip times, assigned to the flows round-robin: `20ms,200ms`, or multiples of the
        /// link's round-trip time: `1:10`.
        pub rtts: Option<Spanned<String>>,
        /// Number of bottlenecks in a row, in a parking lot.
        pub hops: Option<Spanned<NumberOrText>>,
        /// Number of ports of each switch in a fat tree.
        pub ports: Option<Spanned<NumberOrText>>,
        /// Rate of the access links of the hosts.
        pub access: Option<Spanned<String>>,
    }
}

/// The settings of the network around the link, in one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct TopologySettings {
    pub shape: Shape,
    pub rtts: Rtts,
    /// Rate of the access links. `None` if the file does not set the rate.
    pub access: Option<Capacity>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// Hosts on both sides of one bottleneck.
    #[default]
    Dumbbell,
    /// Bottlenecks in a row. A flow under test crosses all bottlenecks, and a competing flow
    /// crosses a single bottleneck.
    ParkingLot { hops: u32 },
    /// A sender for each flow, and a single receiver. The link is the switch's port to the
    /// receiver.
    Incast,
    /// A fat tree, whose links all have the settings of the lab's link.
    FatTree { ports: u32 },
}

/// The flows' round-trip times, assigned round-robin.
#[derive(Debug, Clone, PartialEq)]
pub enum Rtts {
    Times(Vec<Span>),
    /// Multiples of the link's own round-trip time.
    Multiples(Vec<f64>),
}

impl Rtts {
    /// Returns the flows' round-trip times on a link with the round-trip time `link`. No flow has a
    /// shorter round-trip time than the link.
    pub fn on(&self, link: Span) -> Vec<Span> {
        let times = match self {
            Self::Times(times) => times.clone(),
            Self::Multiples(factors) => {
                let times = |factor: &f64| Span::from_nanos((link.nanos() as f64 * factor) as u64);
                factors.iter().map(times).collect()
            }
        };
        times.into_iter().map(|time| time.max(link)).collect()
    }
}

impl Document {
    /// Returns the network of the cell at `axes`.
    pub fn topology_at(&self, axes: &Axes) -> Result<TopologySettings, FileError> {
        let Some(spec) = &self.topology else {
            let (shape, rtts) = (Shape::Dumbbell, Rtts::Multiples(vec![1.0]));
            return Ok(TopologySettings { shape, rtts, access: None });
        };
        let spec = spec.get_ref();
        let word = match &spec.shape {
            Some(written) => self.filled(axes, written)?,
            None => SHAPES[0].to_owned(),
        };
        let count = |written: &Option<Spanned<NumberOrText>>, key, usual, most| match written {
            Some(written) => self.count_at(axes, written, key, most),
            None => Ok(usual),
        };
        let place = spec.shape.as_ref().map_or(0..0, Spanned::span);
        let shape = match word.as_str() {
            "dumbbell" => Shape::Dumbbell,
            "parking-lot" => Shape::ParkingLot { hops: count(&spec.hops, "hops", 3, 64)? },
            "incast" => Shape::Incast,
            "fat-tree" => {
                let ports = count(&spec.ports, "ports", 4, 32)?;
                if ports % 2 == 1 || ports < 4 {
                    let place = spec.ports.as_ref().map_or(place, Spanned::span);
                    let message = "a fat tree's switches have an even number of ports, 4 or more";
                    return Err(self.source.error(place, message));
                }
                Shape::FatTree { ports }
            }
            other => {
                let known = SHAPES.join(", ");
                let hint = units::did_you_mean(other, SHAPES);
                let message = format!("no shape `{other}`{hint}; there are {known}");
                return Err(self.source.error(place, message));
            }
        };
        self.check_shape_keys(shape)?;
        let rtts = match &spec.rtts {
            Some(written) => {
                let text = self.filled(axes, written)?;
                rtts(&text).map_err(|message| self.source.error(written.span(), message))?
            }
            None => Rtts::Multiples(vec![1.0]),
        };
        let access = match &spec.access {
            Some(written) => {
                let text = self.filled(axes, written)?;
                let wrong = |message: String| self.source.error(written.span(), message);
                let rate: Rate = text.parse().map_err(|error| wrong(format!("{error}")))?;
                if rate.bits_per_second() == 0 {
                    return Err(wrong("hosts send at a rate above 0".to_owned()));
                }
                Some(Capacity::Fixed(rate))
            }
            None => None,
        };
        Ok(TopologySettings { shape, rtts, access })
    }

    /// Refuses keys that only another shape reads, unless an axis chooses the shape.
    fn check_shape_keys(&self, shape: Shape) -> Result<(), FileError> {
        let Some(spec) = self.topology.as_ref().map(Spanned::get_ref) else { return Ok(()) };
        if spec.shape.as_ref().is_some_and(|shape| shape.get_ref().contains('{')) {
            return Ok(());
        }
        let hops = spec.hops.as_ref().map(|key| ("hops", key.span(), "parking-lot"));
        let ports = spec.ports.as_ref().map(|key| ("ports", key.span(), "fat-tree"));
        let rtts = spec.rtts.as_ref().map(|key| ("rtts", key.span(), "dumbbell"));
        let own = match shape {
            Shape::Dumbbell => "dumbbell",
            Shape::ParkingLot { .. } => "parking-lot",
            Shape::Incast => "incast",
            Shape::FatTree { .. } => "fat-tree",
        };
        match [hops, ports, rtts].into_iter().flatten().find(|(.., of)| *of != own) {
            Some((key, place, of)) => {
                let message = format!("`{key}` is for `shape = \"{of}\"`, and this one is `{own}`");
                Err(self.source.error(place, message))
            }
            None => Ok(()),
        }
    }
}

/// Parses round-trip times: `20ms,200ms`, or the multiples `1:10`.
fn rtts(text: &str) -> Result<Rtts, String> {
    if text.contains(':') {
        let factors: Result<Vec<f64>, _> =
            text.split(':').map(|part| part.trim().parse()).collect();
        return match factors {
            Ok(factors) if factors.iter().all(|f| (1.0..=1000.0).contains(f)) => {
                Ok(Rtts::Multiples(factors))
            }
            _ => Err(format!(
                "`{text}`: multiples of the link's round trip are written 1:10, each from 1 to 1000"
            )),
        };
    }
    let times: Result<Vec<Span>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    times.map(Rtts::Times).map_err(|error| {
        format!("{error}; round trips are written `20ms,200ms`, or `1:10` of the link's own")
    })
}

const SHAPES: [&str; 4] = ["dumbbell", "parking-lot", "incast", "fat-tree"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_times_or_multiples() {
        let link = Span::from_millis(20);
        let on = |text| rtts(text).unwrap().on(link);
        assert_eq!(on("1:10"), [link, Span::from_millis(200)]);
        assert_eq!(on("10ms, 50ms"), [link, Span::from_millis(50)]);
        assert!(rtts("1:0").unwrap_err().contains("from 1 to 1000"));
        assert!(rtts("1:x").unwrap_err().contains("written 1:10"));
        assert!(rtts("fast").unwrap_err().contains("`20ms,200ms`"));
    }
}
