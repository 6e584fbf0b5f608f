//! Runs one case of the simulator's own validation.

use super::CASE;
use crate::Failure;
use crate::executor::simulator::SimulatorStep;
use crate::run::Measurement;
use results::Form;

pub(super) fn measure(step: &SimulatorStep<'_>) -> Result<Measurement, Failure> {
    let job = step.job;
    let name = job.cell.axes.get(CASE).map_or("", String::as_str);
    let cases = sim::validate::cases();
    let Some(case) = cases.iter().find(|case| case.name == name) else {
        return Err(Failure::Workload(format!("the simulator has no case `{name}`")));
    };
    let checked = case.run(job.plan.form != Form::Full, step.seed);
    if !checked.measured.is_finite() {
        return Err(Failure::Workload("the world of this case could not be measured".to_owned()));
    }
    let mut result = Measurement::default();
    // Each case has a unit of its own, named in the report's method, because a column can have only
    // one.
    result.record("expected", Some(checked.expected));
    result.record("measured", Some(checked.measured));
    result.record("tolerance_percent", Some(checked.tolerance * 100.0));
    result.record("within", Some(f64::from(u8::from(checked.within))));
    result.fingerprint = Some(format!("{:016x}", checked.measured.to_bits()));
    Ok(result)
}
