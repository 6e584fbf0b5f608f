//! A control group's quota stops the process in many of its periods.

use super::{Advice, Case, Finding, Outcome, Rule};
use crate::view::{Flow, OFTEN_THROTTLED, Occupancy, View};
use crate::words::{percent, rate};

pub(super) const RULE: Rule = Rule::new("quota", "a CPU quota").flow(judge);
pub(super) const HIDDEN: Case = Case::new("this namespace hides the quota");

fn judge(flow: &Flow<'_>, view: &View<'_>) -> Outcome {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let worst = ends
        .into_iter()
        .filter_map(|(side, end)| {
            let end = end.as_ref()?;
            Some((side, end, end.throttled(view)?))
        })
        .max_by(|a, b| a.2.throttled_share().total_cmp(&b.2.throttled_share()));
    let Some((side, end, group)) = worst else {
        if let Some(hidden) = hidden(flow, view) {
            return hidden;
        }
        return match view.groups.is_empty() {
            true => Outcome::not_seen("the control groups of the flow's processes"),
            false => Outcome::ruled_out("no control group of the processes was throttled"),
        };
    };
    let share = group.throttled_share();
    if !group.is_held_back() {
        return Outcome::ruled_out(format!(
            "the quota ran out in {} of {} periods{}",
            group.throttled,
            group.periods,
            group.stopped_share().map_or_else(String::new, |stopped| format!(
                ", for {} of the observation",
                percent(stopped)
            ))
        ));
    }
    let cores = group.quota.map_or_else(|| "its quota".to_owned(), |q| format!("{q:.2} cores"));
    Finding::new(format!(
        "a CPU quota is the limit: {}, the {side}, may use {cores} and was stopped in {} of its periods",
        end.name(),
        percent(share)
    ))
    .limits()
    .seen_from("periods in which the quota ran out, of all periods", percent(share), percent(OFTEN_THROTTLED))
    .seen_if("time for which the group was stopped, added over the cores, of the observation", group.stopped_share().map(percent))
    .seen("quota", cores)
    .seen("control group", group.path)
    .seen("rate now", rate(flow.rate()))
    .advise(
        Advice::new("Raise the quota of the group, or of the container")
            .run(match is_of_first_version(group.path) {
                true => format!("echo -1 > {}/cpu.cfs_quota_us", group.path),
                false => format!("echo max > {}/cpu.max", group.path),
            })
            .not("A faster CPU gives more work for the same quota; buffers and congestion control change nothing"),
    )
    .holds()
}

/// Whether the path leads through the hierarchy of the CPU controller (version 1), such as
/// `/sys/fs/cgroup/cpu,cpuacct/x`. A group of version 2 may have a name such as `cpu-batch`.
fn is_of_first_version(path: &str) -> bool {
    let below = path.split_once("cgroup/").map_or("", |(_, below)| below);
    let hierarchy = below.split('/').next().unwrap_or_default();
    hierarchy.split(',').any(|controller| controller == "cpu")
}

/// Finds a thread that waits for a core while cores are idle: a CPU limit stops the thread, and
/// this namespace hides the limit's control group.
fn hidden(flow: &Flow<'_>, view: &View<'_>) -> Option<Outcome> {
    let ends = [("sender", &flow.sender), ("receiver", &flow.receiver)];
    let threads = ends.into_iter().filter_map(|(side, end)| Some((side, end.as_ref()?)));
    let waits = threads.flat_map(|(side, end)| {
        end.tasks(view).into_iter().map(move |task| (side, end, task)).collect::<Vec<_>>()
    });
    let worst = waits.filter_map(|(side, end, task)| Some((side, end, task, task.waited?)));
    let (side, end, task, waited) = worst.max_by(|a, b| a.3.total_cmp(&b.3))?;
    let is_here = |core: usize| task.confined_to.is_none_or(|only| only == core);
    let cores = || view.cores.iter().filter(|(core, _)| is_here(**core)).map(|(_, shares)| shares);
    let idle: f64 = cores().map(|shares| (1.0 - shares.busy() - shares.steal).max(0.0)).sum();
    let steal: f64 = cores().map(|shares| shares.steal).sum();
    let others = Occupancy::of(flow, view, task.place()).others;
    let is_hidden = waited >= HIDDEN_WAITS && idle >= waited && others * 2.0 < waited;
    (is_hidden && steal < LITTLE_STEAL).then(|| {
        Finding::new(format!(
            "a CPU quota that this namespace hides is the limit: {}, the {side}, is ready to run and waits for {} of the observation, while cores are idle",
            end.name(),
            percent(waited)
        ))
        .limits().case(HIDDEN)
        .seen_from(
            format!("thread {} waits, of the observation", task.tid),
            percent(waited),
            percent(HIDDEN_WAITS),
        )
        .seen("CPU time that the thread had, of a core", percent(task.cpu))
        .seen("idle time of the cores that the thread may use", format!("{idle:.2} cores"))
        .seen("CPU time of other processes on these cores", format!("{} of a core", percent(others)))
        .seen("rate now", rate(flow.rate()))
        .advise(
            Advice::new("Look at the container's CPU quota from outside the container")
                .run("cat /sys/fs/cgroup/GROUP/cpu.max /sys/fs/cgroup/GROUP/cpu.stat   (nr_throttled)")
                .not("A faster CPU gives more work for the same quota; buffers and congestion control change nothing"),
        )
        .holds()
    })
}

/// Minimum share of the time in which a thread waits beside idle cores.
const HIDDEN_WAITS: f64 = 0.3;
/// Maximum share of the time that the hypervisor steals, added over the cores.
const LITTLE_STEAL: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::super::sketch::Sketch;
    use super::*;
    use crate::recording::Group;
    use units::Span;

    fn throttled(percent: u64, pid: u32) -> Sketch {
        Sketch::new().each(move |at, sample| {
            sample.groups.push(Group {
                path: "/sys/fs/cgroup/x".to_owned(),
                pids: vec![pid],
                granted: Some(Span::from_millis(10)),
                period: Some(Span::from_millis(100)),
                periods: at * 10,
                throttled: at * 10 * percent / 100,
                throttled_time: Span::from_millis(at * 900 * percent / 100),
            });
        })
    }

    #[test]
    fn a_process_that_its_quota_stops_often_is_limited() {
        assert!(throttled(90, 7).holds(RULE) > 0.9);
    }

    #[test]
    fn the_advice_writes_to_the_files_of_the_groups_version() {
        let command = |path: &'static str| {
            let group = throttled(90, 7).each(|_, sample| sample.groups[0].path = path.to_owned());
            group.judge(RULE).finding().unwrap().advice[0].commands[0].clone()
        };
        for first in ["/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/cpu,cpuacct/x"] {
            assert_eq!(command(first), format!("echo -1 > {first}/cpu.cfs_quota_us"));
        }
        for second in ["/sys/fs/cgroup/cpu-batch", "/sys/fs/cgroup/a.slice/cpu"] {
            assert_eq!(command(second), format!("echo max > {second}/cpu.max"));
        }
    }

    #[test]
    fn a_rarely_used_up_quota_or_another_process_does_not_count() {
        let rare = throttled(0, 7).each(|at, sample| {
            sample.groups[0].periods = at * 100;
            sample.groups[0].throttled = at * 5;
        });
        rare.holds_not(RULE);
        throttled(90, 99).holds_not(RULE);
        // The quota runs out at the end of each fifth period, for 10 ms in a second.
        let short = throttled(20, 7).each(|at, sample| {
            sample.groups[0].throttled_time = Span::from_millis(at * 10);
        });
        short.holds_not(RULE);
        short
            .task(7, 97)
            .core(0, [10, 87, 2, 0])
            .tcp(|_, tcp| {
                tcp.unsent = Some(units::Bytes::ZERO);
            })
            .holds(super::super::cpu::RULE);
    }

    /// The thread runs for a tenth of the time and waits for six tenths, on idle cores.
    #[test]
    fn a_quota_of_another_namespace_is_named_while_cores_are_idle() {
        let waits = |busy: u64| {
            Sketch::new().core(0, [busy, 2, 0, 0]).core(1, [busy, 2, 0, 0]).task(7, 10).each(
                |at, sample| {
                    for task in &mut sample.tasks {
                        task.waited = Some(Span::from_millis(600 * at));
                    }
                },
            )
        };
        assert!(waits(5).holds(RULE) > 0.9);
        waits(5).holds_not(super::super::contention::RULE);
        waits(95).holds_not(RULE);
    }
}
