use link::Stream;
use units::Span;

/// Draws an exponentially distributed time with this mean.
pub(crate) fn exponential(stream: &mut Stream, mean: Span) -> Span {
    let nanos = (standard(stream) * mean.nanos() as f64).round();
    Span::from_nanos(nanos as u64)
}

/// Draws an exponentially distributed number with mean 1, by von Neumann's method (1951), which
/// compares uniform numbers. The method takes no logarithm, because platforms round logarithms
/// differently.
fn standard(stream: &mut Stream) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = stream.unit();
        let (mut least, mut falls) = (first, 1);
        loop {
            let next = stream.unit();
            if next >= least {
                break;
            }
            least = next;
            falls += 1;
        }
        if falls % 2 == 1 {
            return whole + first;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_numbers_have_the_mean_and_variance_of_theory() {
        let mut stream = Stream::new(4, "test");
        let values: Vec<f64> = (0..200_000).map(|_| standard(&mut stream)).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let square = values.iter().map(|v| v * v).sum::<f64>() / count;
        let beyond_3 = values.iter().filter(|v| **v > 3.0).count() as f64 / count;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert!((square - 2.0).abs() < 0.05, "{square}");
        assert!((beyond_3 - 0.0498).abs() < 0.002, "{beyond_3}");
    }
}
