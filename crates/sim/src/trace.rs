use units::Span;

/// A series of bounded length. A full series drops every second point, and from then on records
/// only every second of the points that it would have recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace<P> {
    points: Vec<P>,
    limit: usize,
    /// The series keeps one point out of `stride` offered points.
    stride: u64,
    offered: u64,
}

impl<P: Copy> Trace<P> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { points: Vec::new(), limit: limit.max(2), stride: 1, offered: 0 }
    }

    pub(crate) fn offer(&mut self, point: impl FnOnce() -> P) {
        if self.offered.is_multiple_of(self.stride) {
            if self.points.len() >= self.limit {
                let mut index = 0;
                self.points.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride *= 2;
            }
            if self.offered.is_multiple_of(self.stride) {
                self.points.push(point());
            }
        }
        self.offered += 1;
    }

    /// Returns the recorded points in the order of time.
    pub fn points(&self) -> &[P] {
        &self.points
    }

    /// Returns the time between two recorded points, if `every` lies between two offered points.
    pub fn spacing(&self, every: Span) -> Span {
        every * self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_has_a_bounded_number_of_evenly_spaced_points() {
        let mut trace = Trace::new(8);
        (0..1000).for_each(|value| trace.offer(|| value));
        let points = trace.points();
        assert!((4..=8).contains(&points.len()), "{points:?}");
        assert!(points.windows(2).all(|pair| pair[1] - pair[0] == points[1] - points[0]));
        assert_eq!(points[0], 0);
    }
}
