//! The trimmed mean, for samples of which a few lie far from the other samples.

use statrs::distribution::{ContinuousCDF, StudentsT};
use units::Share;

/// A mean without the smallest and the largest samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrimmedMean {
    /// The mean of the kept samples, in their unit.
    pub mean: f64,
    /// Half of the interval around the mean.
    pub half_width: f64,
}

/// Returns the trimmed mean with the interval of Tukey and McLaughlin (1963). Leaves out the share
/// `cut` of the samples at either end, so that a pause of the host has no influence. With normal
/// noise the interval is hardly wider than the interval of the mean. `None` if fewer than two
/// samples are left or a sample is not a number.
pub fn trimmed_mean(samples: &[f64], cut: Share, level: Share) -> Option<TrimmedMean> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let cut = (count as f64 * cut.fraction()) as usize;
    let kept = sorted.get(cut..count.checked_sub(cut)?)?;
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    // Replace trimmed samples by the nearest kept sample (Winsorized variance).
    let (least, most) = (*kept.first()?, *kept.last()?);
    let winsorized = || sorted.iter().map(|sample| sample.clamp(least, most));
    if least.is_nan() || most.is_nan() {
        return None;
    }
    let middle = winsorized().sum::<f64>() / count as f64;
    let squares: f64 = winsorized().map(|sample| (sample - middle).powi(2)).sum();
    let deviation = (squares / (count - 1) as f64).sqrt();
    let share = kept.len() as f64 / count as f64;
    let student = StudentsT::new(0.0, 1.0, (kept.len() - 1) as f64).ok()?;
    let t = student.inverse_cdf(0.5 + level.fraction() / 2.0);
    let half_width = t * deviation / (share * (count as f64).sqrt());
    half_width.is_finite().then_some(TrimmedMean { mean, half_width })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trimmed_samples_do_not_change_the_mean() {
        let share = |percent| Share::from_percent(percent).unwrap();
        let of = |last: f64| {
            let samples = [1.0, 2.0, 3.0, 4.0, last];
            trimmed_mean(&samples, share(20.0), share(95.0)).unwrap()
        };
        assert_eq!(of(5.0), of(1e9));
        assert_eq!(of(5.0).mean, 3.0);
        // The Winsorized samples are 2, 2, 3, 4, 4, whose deviation is 1. Student's t is 4.3027 for
        // 2 degrees of freedom.
        assert!((of(5.0).half_width - 4.3027 / (0.6 * 5_f64.sqrt())).abs() < 1e-3);
    }

    #[test]
    fn too_few_samples_have_no_interval() {
        let share = |percent| Share::from_percent(percent).unwrap();
        assert_eq!(trimmed_mean(&[], share(20.0), share(95.0)), None);
        assert_eq!(trimmed_mean(&[1.0], share(20.0), share(95.0)), None);
        assert_eq!(trimmed_mean(&[f64::NAN; 5], share(20.0), share(95.0)), None);
    }

    #[test]
    fn a_nan_sample_gives_no_trimmed_mean() {
        let share = |percent| Share::from_percent(percent).unwrap();
        let of = |samples: &[f64], cut| trimmed_mean(samples, share(cut), share(95.0));
        for wrong in [f64::NAN, -f64::NAN] {
            assert_eq!(of(&[1.0, 2.0, 3.0, wrong], 0.0), None);
            assert_eq!(of(&[1.0, 2.0, 3.0, 4.0, wrong], 20.0), None);
        }
    }

    /// Without a cut the trimmed mean is the mean with Student's interval: 1 to 4 has 2.5 +-
    /// 2.05426.
    #[test]
    fn without_a_cut_the_trimmed_mean_has_students_interval() {
        let level = Share::from_percent(95.0).unwrap();
        let found = trimmed_mean(&[1.0, 2.0, 3.0, 4.0], Share::ZERO, level).unwrap();
        assert_eq!(found.mean, 2.5);
        assert!((found.half_width - 2.054_26).abs() < 1e-4, "{found:?}");
    }
}
