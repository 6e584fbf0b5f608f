//! The first line of the summary: how much arrived, and what limited the sender.

use super::format::TextFormat;
use crate::event::{Ended, Started, StreamTotal};
use crate::options::Protocol;
use crate::output::figures::{percent, rate_of, share_percent};
use crate::output::limits;
use crate::output::outcome::{DirectionStreams, Outcome};

pub(super) fn sentence(
    started: &Started,
    ended: &Ended,
    directions: &[DirectionStreams<'_, StreamTotal>],
    format: &TextFormat,
) -> String {
    let outcomes: Vec<Outcome> = directions.iter().map(|one| Outcome::of(&one.streams)).collect();
    let (mut amounts, mut verbs) = (Vec::new(), Vec::new());
    for (outcome, direction) in outcomes.iter().zip(directions) {
        // An iperf3 peer reports no received bytes after a broken test.
        let (end, verb) = match outcome.received.is_known() {
            true => (outcome.received, "arrived"),
            false => (outcome.sent, "were sent"),
        };
        let rate = format.unit.show(rate_of(end.bytes, end.elapsed));
        let way = match (directions.len(), direction.sends) {
            (1, _) => "",
            (_, true) => " from here",
            (_, false) => " to here",
        };
        amounts.push(format!("{rate}{way}"));
        verbs.push(verb);
    }
    let verb = verbs.first().copied().unwrap_or("arrived");
    let moved = format!("{} {verb} in {}", amounts.join(" and "), ended.duration.shown());
    match (outcomes.as_slice(), started.options.protocol) {
        ([one], Protocol::Tcp) => moved + &limit(ended, one),
        ([one], Protocol::Udp) => moved + &lost(one),
        _ => moved,
    }
}

fn limit(ended: &Ended, outcome: &Outcome) -> String {
    if let Some(core) = ended.observed.as_ref().and_then(|observed| observed.limiting_core) {
        return format!(": this machine's CPU was the limit (core {core} was busy)");
    }
    let Some(limited) = outcome.limited_by else { return String::new() };
    let [(name, share), ..] = limits::ranked(&limited);
    let article = match name {
        "full link" => "a ",
        "congestion control" => "",
        _ => "the ",
    };
    format!(": limited by {article}{name} {:.0} % of the time", share.percent())
}

fn lost(outcome: &Outcome) -> String {
    let Some(datagrams) = outcome.datagrams else { return String::new() };
    let share = percent(share_percent(datagrams.lost, datagrams.count));
    format!(": {} of {} datagrams were lost ({share})", datagrams.lost, datagrams.count)
}
