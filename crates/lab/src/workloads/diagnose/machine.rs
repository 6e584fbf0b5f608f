//! Runs one turn: the scene, the doctor in one of the hosts, and its verdict.

use super::case::{Asked, Case, Side};
use super::figures::Counters;
use super::scene::Scene;
use super::verdict::Told;
use crate::bench::machine::{
    MachineStep, Measured, PORT, Roles, SeenLinks, Started, Testbed, Watch, is_installed,
};
use crate::model::{Failure, Flaw, Measurement};
use std::time::{Duration, Instant};

pub(super) fn measure(
    case: &Case,
    step: &MachineStep<'_>,
    testbed: &Testbed,
) -> Result<Measured, Failure> {
    let congestion = step.system.congestion.as_ref().map(|name| name.get_ref().as_str());
    let case = &case.of_sender(congestion);
    if let Some(left_out) = left_out(case) {
        let taken = Watch::read(&Roles::default())?.taken();
        return Ok(Measured::between_ends(step, taken..taken, left_out));
    }
    // A capture starts before the load, so that it contains the load's handshakes.
    let mut capture = None;
    let mut scene = Scene::begin(case, step, testbed, |scene| {
        if case.question == Asked::Capture {
            capture = Some(start(case, step, scene)?);
            pause(step, CAPTURE_BEGINS)?;
        }
        Ok(())
    })?;
    pause(step, step.omit.as_duration())?;
    if let Some(failure) = scene.failure() {
        return Err(failure);
    }
    let roles = Roles { emulator_tid: testbed.emulator_tid(), ..Roles::default() };
    let mut result = Measurement::default();
    let before = Watch::read(&roles)?;
    let counted = Counters::read(&scene)?;
    let begun = Instant::now();
    let doctor = match capture {
        Some(capture) => capture,
        None => start(case, step, &scene)?,
    };
    let document = await_verdict(doctor, case, step)?;
    let seconds = begun.elapsed().as_secs_f64();
    let now = Counters::read(&scene)?;
    let after = Watch::read(&roles)?;
    // The fault of some cases is a load that uses all CPUs, so busy CPUs do not make the
    // measurement invalid.
    after.account_polling(&before, step.cpus, None, &mut result);
    result.record("seconds", Some(seconds));
    let stolen = result.metrics.get("steal_percent").map_or(0.0, |steal| steal.value);
    if stolen > MOST_STOLEN_PERCENT {
        result.invalid.push(Flaw {
            what: "the hypervisor took CPU time".to_owned(),
            detail: units::shown::percent(stolen),
        });
    }
    let told = Told::read(&document)
        .map_err(|reason| Failure::Workload(format!("weir doctor printed no verdict: {reason}")))?;
    now.account(&counted, case, &told, &mut result);
    judge(case, &told, stolen, &mut result);
    if let Some(drawn) = &case.drawn {
        result.labels.insert("case".to_owned(), drawn.case.to_owned());
        result.labels.insert("composition".to_owned(), drawn.words.clone());
        result.invalid.extend(drawn.proof.of_rate(now.carried_since(&counted)));
    }
    let measured = Measured::between_ends(step, before.taken()..after.taken(), result);
    Ok(proven(measured, case, step))
}

/// Adds the check of the emulator's counts, which runs once the emulator has ended.
fn proven(measured: Measured, case: &Case, step: &MachineStep<'_>) -> Measured {
    let Some(drawn) = case.drawn.clone() else { return measured };
    let Measured { result, queues } = measured;
    let from = step.ends.from.clone();
    let queues = move |seen: &SeenLinks<'_>, result: &mut Measurement| {
        queues(seen, result);
        result.invalid.extend(drawn.proof.of_link(seen.statistics, &from));
    };
    Measured { result, queues: Box::new(queues) }
}

/// Returns a turn without a verdict, if a program of the load is not installed.
fn left_out(case: &Case) -> Option<Measurement> {
    let missing: Vec<&str> =
        case.needs.iter().map(String::as_str).filter(|program| !is_installed(program)).collect();
    if missing.is_empty() {
        return None;
    }
    let mut result = Measurement::default();
    result.warnings.push(format!(
        "left out: {} not installed",
        missing.join(" and ") + if missing.len() == 1 { " is" } else { " are" }
    ));
    Some(result)
}

fn judge(case: &Case, told: &Told, stolen: f64, result: &mut Measurement) {
    // A hypervisor that takes CPU time is a second fault beside the lab's, so the verdict about
    // stolen time is right too.
    let is_stolen = stolen > MOST_STOLEN_PERCENT && told.first == STOLEN;
    let right = is_stolen || case.expected.is_first_right(told);
    result.record("first_verdict_right", Some(f64::from(u8::from(right))));
    let among = if is_stolen { 1.0 } else { case.expected.among_first_two(told) };
    result.record("among_first_two", Some(among));
    let mut label = |name: &str, text: &str| {
        result.labels.insert(name.to_owned(), text.to_owned());
    };
    label("verdict", &told.first);
    label("expected", &case.written_expectation);
    label("shares", &told.shares);
    if !right || among < 1.0 {
        let because = case.expected.names().filter_map(|name| {
            let (_, by) = told.against.iter().find(|(cause, _)| cause == name)?;
            Some(format!(" {name} was ruled out: {by}."))
        });
        let because: String = because.collect();
        let words = case.drawn.as_ref().map(|drawn| format!(" [{}]", drawn.words));
        let words = words.unwrap_or_default();
        result.warnings.push(format!(
            "told {} about {}{words}: {} ({}){because}",
            std::iter::once(&told.first)
                .chain(&told.others)
                .take(3)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", "),
            case.written_expectation,
            told.sentence,
            told.shares
        ));
    }
}

/// Returns the number of seconds that `weir doctor` observes.
fn seconds(case: &Case, step: &MachineStep<'_>) -> u64 {
    let seconds = step.duration.secs_f64().round().max(1.0) as u64;
    let early = match case.question {
        Asked::Capture => step.omit.secs_f64().ceil() as u64 + u64::from(case.ready_within / 4),
        _ => 0,
    };
    seconds.max(case.watch_at_least.into()) + early
}

/// Starts `weir doctor` in the host that the case names.
fn start(case: &Case, step: &MachineStep<'_>, scene: &Scene<'_>) -> Result<Started, Failure> {
    let seconds = seconds(case, step);
    let mut argv = vec![step.weir.display().to_string(), "doctor".to_owned(), "--json".to_owned()];
    let time = ["--time".to_owned(), seconds.to_string()];
    match &case.question {
        Asked::Machine => argv.extend(time),
        Asked::Flow(flow) => {
            argv.extend(time.into_iter().chain(["--flow".to_owned(), flow.clone()]))
        }
        Asked::Capture => {
            argv.extend(time.into_iter().chain(["--capture", "eth0"].map(str::to_owned)));
        }
        // A test (`weir doctor HOST`) has a duration of its own, in place of the seconds of
        // observation.
        Asked::Test => {
            let host = scene.address(match case.side {
                Side::Sender => Side::Receiver,
                Side::Receiver => Side::Sender,
            });
            argv.extend([host.to_string(), "--port".to_owned(), PORT.to_string()]);
        }
    }
    argv.extend(case.cpus.iter().flat_map(|cpus| ["--cpus".to_owned(), cpus.clone()]));
    scene.program(case.side, &argv, &[])
}

/// Waits for the document that `weir doctor` prints.
fn await_verdict(
    mut doctor: Started,
    case: &Case,
    step: &MachineStep<'_>,
) -> Result<String, Failure> {
    let deadline = Instant::now() + Duration::from_secs(seconds(case, step)) + PATIENCE;
    while Instant::now() < deadline {
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        match doctor.wait(Duration::from_millis(20))? {
            Some(status) if status.success() => {
                let read = doctor.output();
                return read.map_err(|error| Failure::io("reading the verdict", &error));
            }
            Some(status) => return Err(doctor.early_end(status)),
            None => {}
        }
    }
    Err(Failure::Workload(format!(
        "weir doctor did not end within {} s after its observation",
        PATIENCE.as_secs()
    )))
}

fn pause(step: &MachineStep<'_>, time: Duration) -> Result<(), Failure> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        if step.cancel.is_cancelled() {
            return Err(Failure::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    Ok(())
}

/// The name of the doctor's cause for CPU time that the hypervisor took.
const STOLEN: &str = "stolen-cpu";
const MOST_STOLEN_PERCENT: f64 = 2.0;
/// Maximum time until a capture has opened its socket.
const CAPTURE_BEGINS: Duration = Duration::from_millis(700);
/// Maximum time for the verdict. A machine without idle CPU time needs long.
const PATIENCE: Duration = Duration::from_secs(20);
