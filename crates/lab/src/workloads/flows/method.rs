//! Describes for the report how flows are measured.

pub(super) const METHOD: &[(&str, &str)] = &[
    (
        "begins",
        "one flow after the other by the lab's stagger, each delayed by up to a round trip at random. The time left out at the start counts from the last flow's start. For flows that have an end the whole time counts",
    ),
    (
        "share of ideal",
        "the total that all flows deliver to applications, over the ideal: the rate without headers times 1 - loss, less cross traffic, and at most the policer's rate or the applications' demand",
    ),
    (
        "part of fair share",
        "the mean goodput of a flow under test, over an equal part of the ideal for each flow on the link. 1 is fair",
    ),
    (
        "harm",
        "1 - the goodput of the competing flows, over their goodput when the flows under test use the same algorithm as they do: after Ware, Mukerjee, Seshan and Sherry 2019, with their own algorithm as the measure. 0 or less: no more harm than a flow of their own algorithm",
    ),
    (
        "convergence",
        "round trips from the start of the last flow until its goodput, averaged over four of them, is first within a tenth of its fair share. If it never is, all the remaining time",
    ),
    (
        "after a rate step",
        "round trips until the goodput of all flows, averaged over four of them, is within a tenth of what the new rate allows. The longest of all steps. If it never is, all the remaining time",
    ),
    (
        "queue at start-up",
        "the longest queue at the bottleneck in the first 20 round trips of a single flow, as the time the link takes to send it",
    ),
    (
        "slowdown",
        "a flow's completion time over the time of a single flow on an empty link without a window: a handshake, the path delay, and the transmission time",
    ),
    (
        "retransmitted",
        "retransmitted payload over sent payload of the flows under test, in the measured time",
    ),
    ("round trip", "the path's propagation and the time packets waited at the bottleneck"),
    ("queue", "at the bottleneck with the longest queue, by its 95th percentile"),
];
