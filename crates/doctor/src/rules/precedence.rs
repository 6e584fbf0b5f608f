//! A row of the table of precedence.

use super::finding::Claim;
use super::rank::Rank;
use super::{Case, Rule};
use crate::recording::Connection;
use crate::signs::full_path::full_rate;
use crate::view::{End, Flow, View};
use units::Span;

/// A cause and its rank among the other causes.
#[derive(Debug)]
pub struct Row {
    pub rule: Rule,
    /// The reason for the row's position, and for the causes that it silences.
    pub because: &'static str,
    /// The rank of a finding, unless another column has its rank.
    rank: Rank,
    /// The rank of a finding about the machine as a whole, if the rank is another.
    rank_of_machine: Option<Rank>,
    /// The ranks of the cases that the rule distinguishes.
    cases: &'static [(Case, Rank)],
    /// Causes of the same connection, or of the machine, that do not stand beside this cause.
    silences: &'static [&'static str],
    /// Causes that this cause silences at every connection and at the machine, wherever it was
    /// found.
    silences_everywhere: &'static [&'static str],
    /// Causes that do not stand beside this cause if the connection fulfils a condition.
    silences_if: Option<(Condition, &'static [&'static str])>,
    /// Minimum share of the rate that this cause explains while it silences other causes.
    pub(super) silences_from: f64,
    /// Whether a connection that this cause limits still moves data.
    pub moves_data: bool,
    /// Whether a saved result of `weir perf` or of a lab has the signals of this cause.
    pub is_saved: bool,
    /// Whether a capture has the signals of this cause.
    pub is_captured: bool,
    /// Whether the cause is a limit by the application, which is a verdict only if the user asks
    /// about the connection.
    pub is_application: bool,
    /// Whether the finding holds for the direction of a test that used up the resource, and not for
    /// the opposite direction.
    pub is_of_direction: bool,
    /// Whether the finding counts packets that other causes explain. Such a finding has a line of
    /// its own in the output.
    pub counts_drops: bool,
    /// The end that decides if both ends of a connection were observed; `None`: the end that holds
    /// the cause for true.
    pub(super) judge: Option<Judge>,
    /// A receiver with this cause closes its window, which the sender sees as the cause
    /// `receiver-window`.
    pub(super) closes_window: bool,
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judge {
    Sender,
    Receiver,
}

/// The connection that the findings are about; `None` for findings about the machine.
pub(super) type Seen<'f, 'a> = Option<(&'f Flow<'a>, &'f View<'a>)>;

type Condition = fn(&Flow<'_>, &View<'_>) -> bool;

/// Whether no full window of a long path holds the sender back, so that the CPU may.
pub(super) fn is_held_by_no_window(flow: &Flow<'_>, _view: &View<'_>) -> bool {
    !flow.sender.as_ref().is_some_and(End::waits_for_window)
}

/// Whether the link of the bottleneck is busy nearly always: its queue never empties, or losses
/// leave the rate near the highest.
pub(super) fn is_bottleneck_busy(flow: &Flow<'_>, _view: &View<'_>) -> bool {
    let Some(sender) = &flow.sender else { return false };
    if full_rate(sender).is_some() {
        return true;
    }
    let Some(least) = sender.tcp().min_rtt else { return false };
    let is_queued = |c: &Connection| {
        let queue = c.tcp.rtt.unwrap_or_default() - least;
        queue >= SHORTEST_QUEUE && queue.nanos() >= least.nanos() / 10
    };
    sender.often(is_queued) >= ALWAYS
}

/// Minimum share of a cause that silences other causes: a smaller share leaves room for other
/// causes.
const HALF: f64 = 0.5;
const SHORTEST_QUEUE: Span = Span::from_millis(1);
/// Minimum share of the samples with a queue, for a queue that counts as never empty.
const ALWAYS: f64 = 0.9;

impl Row {
    /// Returns the rank of a claim about a flow or about the machine.
    pub(super) fn rank(&self, claim: Claim, of_machine: bool) -> Rank {
        let Some(case) = claim.case else {
            return self.rank_of_machine.filter(|_| of_machine).unwrap_or(self.rank);
        };
        let found = self.cases.iter().find(|(known, _)| *known == case);
        found.map_or(self.rank, |(_, rank)| *rank)
    }

    pub(super) fn silences_cause(&self, cause: &str, seen: Seen<'_, '_>) -> bool {
        let on_condition = self.silences_if.is_some_and(|(holds, causes)| {
            causes.contains(&cause) && seen.is_some_and(|(flow, view)| holds(flow, view))
        });
        self.silences.contains(&cause) || on_condition
    }

    pub(super) fn silences_cause_everywhere(&self, cause: &str) -> bool {
        self.silences_everywhere.contains(&cause)
    }

    /// Returns every other cause that the row names.
    #[cfg(test)]
    pub(super) fn named(&self) -> impl Iterator<Item = &'static str> + '_ {
        let on_condition = self.silences_if.map_or(&[][..], |(_, causes)| causes);
        let ranks = self.cases.iter().map(|(_, rank)| rank).chain(&self.rank_of_machine);
        let beside = ranks.chain([&self.rank]).filter_map(|rank| rank.beside);
        let silenced = self.silences.iter().chain(self.silences_everywhere).chain(on_condition);
        silenced.copied().chain(beside)
    }

    pub(super) const fn on_machine(self, rank: Rank) -> Self {
        Self { rank_of_machine: Some(rank), ..self }
    }

    pub(super) const fn cases(self, cases: &'static [(Case, Rank)]) -> Self {
        Self { cases, ..self }
    }

    pub(super) const fn everywhere(self, silences_everywhere: &'static [&'static str]) -> Self {
        Self { silences_everywhere, ..self }
    }

    pub(super) const fn silences_if(
        self,
        condition: Condition,
        causes: &'static [&'static str],
    ) -> Self {
        Self { silences_if: Some((condition, causes)), ..self }
    }

    pub(super) const fn silences(self, silences: &'static [&'static str]) -> Self {
        Self { silences, ..self }
    }

    pub(super) const fn at_any_share(self) -> Self {
        Self { silences_from: 0.0, ..self }
    }

    pub(super) const fn moves(self) -> Self {
        Self { moves_data: true, ..self }
    }

    pub(super) const fn saved(self) -> Self {
        Self { is_saved: true, is_captured: true, ..self }
    }

    pub(super) const fn captured(self) -> Self {
        Self { is_captured: true, ..self }
    }

    pub(super) const fn of_direction(self) -> Self {
        Self { is_of_direction: true, ..self }
    }

    pub(super) const fn drops(self) -> Self {
        Self { counts_drops: true, ..self }
    }

    pub(super) const fn application(self) -> Self {
        Self { is_application: true, judge: Some(Judge::Sender), ..self }
    }

    pub(super) const fn judged_at_receiver(self) -> Self {
        Self { judge: Some(Judge::Receiver), ..self }
    }

    pub(super) const fn closes_window(self) -> Self {
        Self { closes_window: true, ..self }
    }
}

pub(super) const fn row(rule: Rule, rank: Rank, because: &'static str) -> Row {
    Row {
        rule,
        because,
        rank,
        rank_of_machine: None,
        cases: &[],
        silences: &[],
        silences_everywhere: &[],
        silences_if: None,
        silences_from: HALF,
        moves_data: false,
        is_saved: false,
        is_captured: false,
        is_application: false,
        is_of_direction: false,
        counts_drops: false,
        judge: None,
        closes_window: false,
    }
}
