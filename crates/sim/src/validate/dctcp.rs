use super::path::{PLAIN, PathConfig, Window, plain_hosts};
use super::{Case, Effort, Layer, Measured};
use cc::Algorithm;
use units::{Rate, Span};

/// Alizadeh et al., "Data Center TCP", SIGCOMM 2010, section 3.3: with N flows in step and marks
/// above K segments, W* = (C RTT + K) / N, alpha = sqrt(2 / W*), and the queue swings by N W* alpha
/// / 2 up to K + N.
pub(super) fn cases() -> Vec<Case> {
    let case = |name, unit, tolerance, pick: fn(&Queue) -> (f64, f64)| Case {
        name,
        layer: Layer::Formula,
        unit,
        note: "Alizadeh et al. 2010, 3.3: one flow, 1 Gbit/s, 1 ms, K = 40 segments; alpha from the queue's swing",
        variant: Some(PLAIN),
        tolerance,
        measure: Box::new(move |effort| {
            let (expected, measured) = pick(&queue(effort)?);
            Some(Measured::of(expected, measured))
        }),
    };
    vec![
        case("DCTCP's alpha", "", 0.25, |queue| {
            ((2.0 / queue.window).sqrt(), 2.0 * queue.swing() / queue.window)
        }),
        case("DCTCP's queue at most", "segments", 0.10, |queue| (K + 1.0, queue.most)),
        case("DCTCP's queue swings by", "segments", 0.25, |queue| {
            (0.5 * (2.0 * queue.window).sqrt(), queue.swing())
        }),
    ]
}

struct Queue {
    /// W*
    window: f64,
    least: f64,
    most: f64,
}

impl Queue {
    fn swing(&self) -> f64 {
        self.most - self.least
    }
}

fn queue(effort: Effort) -> Option<Queue> {
    let mut path = PathConfig::new(Rate::from_mbit(1000), Span::from_millis(1));
    path.queue = "red:limit=2000p,min=40p,step,ecn".parse().ok()?;
    path.hosts = plain_hosts(effort);
    path.sample_every = Span::from_micros(50);
    let run = path.run(Algorithm::Dctcp, Window::seconds(2, 1), effort)?;
    let mut queued: Vec<f64> = run.queue().into_iter().map(|bytes| bytes / FRAME).collect();
    queued.sort_by(f64::total_cmp);
    let at = |share: f64| queued.get((queued.len() as f64 * share) as usize).copied();
    let pipe = path.bdp().count() as f64 / FRAME;
    Some(Queue { window: pipe + K, least: at(0.01)?, most: at(0.99)? })
}

const FRAME: f64 = 1514.0;
const K: f64 = 40.0;
