/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * State of a tcpa connection and of its path, constants, and rounds. A round is a round trip
 * counted by data: it ends when the data that was sent at its beginning is acknowledged. The ACKs
 * of a round therefore report the packets sent in the previous round: `judged` is the mode in the
 * previous round.
 */
#ifndef WEIR_CC_TCPA_STATE_H
#define WEIR_CC_TCPA_STATE_H

#include "contract.h"

struct tcpa_params {
	u32 init_cwnd; /* segments, paced over the first round trip */
	u32 loss_init_cwnd; /* segments after a retransmission timeout */
	u32 no_pauses; /* 1: the flow makes no pauses, and does not learn of a longer path */
	u32 unused;
};

enum tcpa_mode {
	TCPA_STARTUP, /* grow as fast as possible to find the rate */
	TCPA_DRAIN, /* drain the queue that start-up left */
	TCPA_STEADY,
	TCPA_PAUSE,
};

/* State of a remembered rate (tcpa_resume.h). */
enum tcpa_resuming {
	TCPA_AFRESH, /* nothing is remembered, or the memory was discarded */
	TCPA_AWAITING, /* no packet sent at this part of the rate is acknowledged yet */
	TCPA_HEARING, /* ACKs of this part arrive */
};

/* The window after a slump (tcpa_slump.h). */
enum tcpa_slump_phase {
	TCPA_SLUMP_LEAVING, /* more is in flight than the new window */
	TCPA_SLUMP_LEFT, /* the excess has left; this round reports packets sent earlier */
	TCPA_SLUMP_TOLD, /* the next round tells why the rate fell */
};

/* An instant, and `delivered` at that time: the start of a measurement of delivery. */
struct tcpa_mark {
	u64 at_us;
	u64 delivered;
};

struct tcpa {
	struct tcpa_params params;
	u64 pacing; /* bytes a second */
	u32 cwnd; /* bytes: the decision; may be below `window` for a while */
	u32 mss;
	u32 window; /* bytes that may be in the network, in STEADY */
	u8 mode; /* enum tcpa_mode */
	u8 judged; /* the mode in which the flow sent the packets that this round's ACKs report */
	u8 round_mode; /* the mode in which the flow sends this round's packets */
	u8 resuming; /* enum tcpa_resuming */

	/* the round under way */
	u64 round_end; /* `delivered` at which the round ends */
	u64 round_began_us;
	u64 round_began_delivered;
	u64 round_rate; /* the best rate sample */
	u64 round_rtt_sum;
	u32 round_rtts;
	u32 round_lost;
	u32 round_acked;
	u32 round_rtt; /* the shortest RTT; 0: no sample */
	u32 round_rtt_max;
	u32 round_inflight; /* the most bytes in flight */
	u32 round_allowed; /* the limit on bytes in flight */
	u16 round_bursts; /* ACKs that reported loss */
	u8 round_app_limited;
	u8 starved; /* another limit kept the acknowledged round small */

	/* the path */
	u64 rate[2]; /* the best rate of this stretch of rounds, and of the previous stretch */
	u64 average; /* bytes a second, delivered in the last round */
	u64 known; /* the measured rate, to be remembered; 0: none */
	u64 min_rtt_at_us;
	u32 stretch_rounds;
	u32 min_rtt; /* us */
	u32 rtt; /* the shortest RTT of the last round */
	u32 base_rtt; /* RTT without this flow's queue: the shortest of the last pause */
	u32 spread; /* us: the variation of RTTs within a round */
	u32 room; /* us: the largest queue that stood for a round; the buffer holds as much */
	u32 depth; /* us: the queue at the last overflow; 0: unknown */
	u32 brake; /* us: no haste beyond this RTT */
	u8 sure; /* the last pause found no shorter round trip */
	u8 found_shorter;

	/* start-up and drain */
	u64 remembered; /* bytes a second: an earlier connection's rate; valid while resuming */
	u64 full_rate; /* the fastest delivery of this start-up, or of a remembered part */
	struct tcpa_mark start; /* start of the measured ACK train */
	u8 full_rounds; /* rounds in a row without growth; in DRAIN every round counts */
	u8 lossy_rounds;
	u8 restarting;
	/* queue control */
	u8 haste; /* rounds in a row that met no queue */
	u8 echoes; /* rounds that will still report packets sent before the last answer to loss */
	u8 restarts; /* start-ups after the first */
	u8 shallow; /* the queue that overflowed was smaller than the target */
	u64 capacity; /* bytes a second: the rate of the whole path; known from STEADY on */

	/* loss */
	u64 debt; /* bytes lost beyond the path's own loss; never below zero */
	u64 floor_lost; /* bytes; floor_lost and floor_sent decay */
	u64 floor_sent;
	u64 pause_lost; /* bytes, as floor_lost and floor_sent, but in pauses alone */
	u64 pause_sent;
	u32 again_s; /* the earliest time of the next start-up */
	u32 burst; /* mean bytes lost per ACK that reports a loss */

	/* rivals */
	u8 rival; /* queue-free pauses until the flow counts as alone; 0: it counts as alone */
	u8 patience; /* value of `rival` when the flow meets a rival */
	u8 standing; /* another flow's queue stood in a pause, DRAIN or a slump */
	u8 looking; /* the ACKs that give the result of a pause have not arrived yet */
	u8 quiet_looks; /* pauses since the flow counts as alone */
	u8 unanswered; /* losses in a row that this flow's reductions did not prevent */
	u32 held; /* the window at the last pause without a queue, slump or return */
	u32 cut; /* the reduction at the last answered loss, of 1024 */
	u32 peak; /* CUBIC's W_max: before the last answered loss, or on meeting a rival */
	u32 sound_depth; /* us: `depth` without doubtful overflows */
	u64 peak_at_us; /* time of `peak` */
	u32 peak_rate; /* KiB a second delivered at overflows */
	u32 rival_rounds; /* rounds beside a rival since the last answered loss */
	u64 acked_us; /* time of the last ACK */
	u64 pause_until; /* the end of the last pause; 0: none */
	u8 past_instant; /* the first pause instant has passed */

	/* a sudden slump */
	struct tcpa_mark slump; /* start of the measured interval */
	u32 slumped; /* the window before the slump; 0: no slump to judge */
	u8 slumps; /* intervals in a row that delivered far less than the flow sent */
	u8 slump_phase; /* enum tcpa_slump_phase, while `slumped` is set */

	/* a rate that returns */
	u64 most; /* bytes a second: the recent maximum over whole rounds */
	struct tcpa_mark train; /* start of the ACK train that is measured while a queue stands */
	u64 fell_us; /* when the rate fell */
	u64 hold_until; /* end of the time with a fixed window; 0: the window follows the rate */
	u32 low_us; /* how long the last fall of the rate lasted */
	u8 fallen; /* the rate fell and has not returned */
	u8 swings; /* falls in a row after which the rate returned soon */
	u8 settled; /* a queue stood since the last slump */
	u8 calm; /* rounds judged since the last pause or slump */
	u8 seeking; /* in start-up: the window may grow to `most` */
	u8 returning; /* this round reports packets sent before the flow raised the window */

	/* lumpy ACKs */
	u8 lumps; /* distinct ACK arrival times in this round */
	u8 lumpy; /* few arrival times for the data acknowledged */
};

/*
 * Constants: unit, reason, and the measurement that shows a change. The usual measurement is `weir
 * sim run cc-grid --quick --systems tcpa`: docs/internals/tcpa.md lists how many of its cells
 * change if a constant is halved or doubled. A comment names a lab or a test if the value was
 * chosen with it, or if cc-grid shows no change. Shares and gains are in 1/1024 (CC_ONE).
 */

/* Rounds; half of the length of the filter of the best rate. Long enough that pauses and lumpy ACKs
 * leave a good sample, short enough that a lower rate shows within 16 rounds. */
#define TCPA_STRETCH 8U
/* Gain of the pacing rate and the window in start-up: 2 / ln 2, the least that doubles the delivery
 * in each round (BBR, ACM Queue 2016). */
#define TCPA_STARTUP_GAIN 2955U
/* Gain of the pacing rate in DRAIN: 5/8. Undetected losses count as in flight, so with a lower pace
 * the path would run empty. Measured, with start-up's end, on the paths of labs/tcpa.toml. */
#define TCPA_DRAIN_GAIN 640U
/* Rounds of DRAIN. In this time a bandwidth-delay product leaves the path, so a queue that remains
 * is another flow's. Measured together with TCPA_DRAIN_GAIN. */
#define TCPA_DRAIN_ROUNDS 4U
/* us (30 s). A min_rtt that no pause has confirmed for this time belongs to an earlier route. All
 * labs are shorter. */
#define TCPA_MIN_RTT_US 30000000U
/* Segments. A receiver may delay the ACK of one or two segments: fewer than four segments measure
 * the receiver's timer and not the path. */
#define TCPA_LEAST_SEGMENTS 4U
/* Segments. A window of one segment would wait for the delayed ACK of each segment. */
#define TCPA_LEAST_WINDOW 2U
/* Parts of the RTT, and us (0.5 ms): tcpa_noise. Serialisation, interrupt coalescing and timer
 * ticks vary a sample by as much without a queue; the fixed part is for RTTs of a LAN. */
#define TCPA_NOISE_PART 16U
#define TCPA_NOISE_US 500U
/* us (2 ms). The least RTT growth that counts as a queue, however short the RTT is: a delayed ACK
 * of a pair of segments and the host's scheduling explain smaller growth. */
#define TCPA_SLACK_US 2000U
/* us (10 ms). RTT growth that stops start-up's window within a round. Larger than TCPA_SLACK_US,
 * because a burst of the first rounds makes a queue without filling the path. */
#define TCPA_BRAKE_US 10000U
/* us (5 ms). The shortest interval in which a slump is measured: it spans the gaps between lumpy
 * ACKs on short paths. */
#define TCPA_SLUMP_US 5000U
/* Share of packets, a tenth: the most that counts as the path's own loss. A flow that joins a full
 * queue sees no queue growth and steady losses, which it could mistake for the path's own. */
#define TCPA_MOST_FLOOR 102U
/* Share of packets, a fifth. No usable path loses as much by itself. */
#define TCPA_HEAVY_LOSS (2 * TCPA_MOST_FLOOR)
/* Segments after which the sums of the floor are halved: a path's loss changes, so older rounds
 * count less. */
#define TCPA_FLOOR_SEGMENTS 1024U
/* After this many rounds with loss below the rate of the last overflow, that overflow counts as
 * random loss: this many rounds are no chance. Test:
 * random_loss_keeps_no_connection_at_half_of_the_path of crates/sim. */
#define TCPA_DOUBTED 3U
/* Share of packets, 1.6 %, beyond the floor: chance and the other flows' start-ups. */
#define TCPA_TOLERATED 16U
/* us (40 ms). Scale of the target queue: the target is the square root of this times the time of a
 * packet at the flow's rate. 100 us a packet give 2 ms, 1 ms gives 6.3 ms. With a larger value,
 * shares become equal sooner, at a longer queue. */
#define TCPA_FAIR_US 40000U
/* Share of the window, 1/8: the least answer to an overflow while holding. The queue was small, so
 * a smaller reduction than CUBIC's empties it. */
#define TCPA_LEAST_CUT 128U
/* Share of the window, 1/2: the largest answer to one loss, Reno's. */
#define TCPA_MOST_CUT 512U
/* Rounds after an answer to loss that report packets sent before the answer: the present round, and
 * the round that was in flight. */
#define TCPA_ECHO_ROUNDS 2U
/* The most rounds without a queue that make the growth faster. Each quadruples the growth, up to a
 * quarter of the window a round. */
#define TCPA_HASTE_MOST 5U
/* Distinct ACK times in a round. With this number or fewer, ACKs arrive in lumps (wireless links,
 * interrupt coalescing), and RTTs include the wait for the next lump. cc-grid: axis `lumps`. */
#define TCPA_FEW_LUMPS 4U
/* s, and segments: the least time between start-ups of a flow that loses packets without a queue
 * and has a window below this number of segments. A policer answers each start-up with losses, so
 * the time doubles. Tests: many_starts_print_their_figures of crates/quic,
 * a_policer_costs_tcpa_few_retransmissions of crates/sim. */
#define TCPA_AGAIN_S 8U
#define TCPA_AGAIN_SEGMENTS 32U
/* Pauses without a queue until a rival counts as gone: at first, and at most after a rival has come
 * back several times. */
#define TCPA_PATIENCE 1U
#define TCPA_PATIENCE_MOST 8U
/* Segments. In a smaller window the loss of one segment is more than an eighth. */
#define TCPA_SMALL_SEGMENTS 8U
/* Segments. A flow with a smaller window cannot distinguish random loss from an overflow of many
 * flows or from a policer. Test: a_policer_costs_tcpa_few_retransmissions of crates/sim. */
#define TCPA_FEW_SEGMENTS 16U
/* Share of the window: CUBIC's reduction, 1 - 0.7 (RFC 9438, 4.6). */
#define TCPA_RIVAL_CUT 307U
/* Share of packets, 0.2 %: loss beyond the floor that chance explains, beside rivals. */
#define TCPA_RIVAL_TOLERATED 2U
/* If rivals leave too little: the share of the window that the flow gives up (1/16), and the share
 * of packets that the flow may lose without a reduction (3 %). */
#define TCPA_DEAF_CUT 64U
#define TCPA_DEAF_TOLERATED 30U
/* Answers to loss in a row that the rivals did not join, until they count as deaf. */
#define TCPA_DEAF_LOSSES 3U
/* Bytes (1 GiB): windows fit 32 bits with room for a round's growth. */
#define TCPA_MOST_WINDOW (1U << 30)
/* us (16.8 s): a queue that grows a quarter with each pause must not wrap. */
#define TCPA_MOST_DEPTH_US (1U << 24)
/* us (1 s): the longest RTT that growth by time uses, so that products fit. */
#define TCPA_MOST_GROWTH_US (1U << 20)

CC_INLINE u64 tcpa_rate(const struct tcpa *t)
{
	return cc_max(t->rate[0], t->rate[1]);
}

/* RTT growth that is noise and not a queue, in us. */
CC_INLINE u32 tcpa_noise(u32 rtt)
{
	return rtt / TCPA_NOISE_PART + TCPA_NOISE_US;
}

/* RTT growth above which a packet met a queue, in us. */
CC_INLINE u64 tcpa_queue_slack(const struct tcpa *t)
{
	return cc_max(t->min_rtt / 4, TCPA_SLACK_US);
}

/* RTT growth in a pause above which a packet met a queue, in us. Smaller than tcpa_queue_slack,
 * because this flow's own queue has left. */
CC_INLINE u64 tcpa_pause_slack(const struct tcpa *t)
{
	return cc_max(t->min_rtt / 8, TCPA_SLACK_US);
}

/* Whether this RTT includes a queue. */
CC_INLINE u8 tcpa_met_queue(const struct tcpa *t, u32 rtt)
{
	return rtt > t->min_rtt + tcpa_queue_slack(t);
}

/* The RTT of the last round, at least min_rtt. */
CC_INLINE u64 tcpa_round_trip(const struct tcpa *t)
{
	return cc_max(t->rtt, t->min_rtt);
}

/* Whether a rival's queue is so long that min_rtt does not tell how long a round takes. */
CC_INLINE u8 tcpa_deep(const struct tcpa *t)
{
	return t->rival && t->rtt > 8ULL * t->min_rtt;
}

/* The time that a round takes: the path's RTT, or the RTT with a rival's deep queue. */
CC_INLINE u64 tcpa_round_time(const struct tcpa *t)
{
	return tcpa_deep(t) ? tcpa_round_trip(t) : t->min_rtt;
}

/* The fewest bytes in flight with which a round is usable. */
CC_INLINE u64 tcpa_least_flight(const struct tcpa *t)
{
	return (u64)TCPA_LEAST_SEGMENTS * t->mss;
}

/* Whether less was in flight than the window and the pace allowed, because of another limit. */
CC_INLINE u8 tcpa_underused(const struct tcpa *t)
{
	return t->round_inflight < t->round_allowed / 4 * 3;
}

/* Whether the window is so small that a round gives no reliable measurement. */
CC_INLINE u8 tcpa_small(const struct tcpa *t)
{
	return t->window < TCPA_SMALL_SEGMENTS * t->mss;
}

/* The most that the path may lose by itself, of 1024: the loss in pauses, in which all flows send
 * less, and some bursts that pauses may have missed. */
CC_INLINE u32 tcpa_most_floor(const struct tcpa *t)
{
	u64 missed = 2 * t->pause_lost + 2ULL * cc_max(t->burst, t->mss);

	if (!t->pause_sent)
		return TCPA_MOST_FLOOR;
	return (u32)cc_min(cc_div(missed * CC_ONE, t->pause_sent), TCPA_MOST_FLOOR);
}

/* The share that the path loses by itself, of 1024. */
CC_INLINE u32 tcpa_floor(const struct tcpa *t)
{
	return (u32)cc_min(cc_div(t->floor_lost * CC_ONE, t->floor_sent), tcpa_most_floor(t));
}

CC_INLINE u64 tcpa_bdp(const struct tcpa *t)
{
	return cc_bytes_in(tcpa_rate(t), t->min_rtt);
}

CC_INLINE void tcpa_pace(struct tcpa *t, u64 rate)
{
	t->pacing = cc_max(rate, 1000);
}

/* Returns the rate that delivers `bytes` in a round trip. */
CC_INLINE u64 tcpa_per_rtt(const struct tcpa *t, u64 bytes)
{
	return cc_rate(bytes, cc_max(tcpa_round_trip(t), 1));
}

CC_INLINE u32 tcpa_clamp_window(u64 window, u64 least)
{
	return (u32)cc_min(cc_max(window, least), TCPA_MOST_WINDOW);
}

/* A window within the bounds of `window`. */
CC_INLINE u32 tcpa_bound_window(const struct tcpa *t, u64 window)
{
	return tcpa_clamp_window(window, (u64)TCPA_LEAST_WINDOW * t->mss);
}

CC_INLINE void tcpa_begin_round(struct tcpa *t, const struct cc_ack *ack)
{
	u32 usable = t->mode == TCPA_STEADY ? t->window : t->cwnd;

	t->starved = t->round_app_limited || tcpa_underused(t);
	t->round_allowed = (u32)cc_min(usable, cc_bytes_in(t->pacing, t->min_rtt));
	t->lumpy = t->lumps <= TCPA_FEW_LUMPS && t->round_acked >= TCPA_FEW_SEGMENTS * t->mss;
	t->lumps = 0;
	t->round_bursts = 0;
	t->round_end = ack->delivered;
	t->round_began_us = ack->now_us;
	t->round_began_delivered = ack->delivered;
	t->round_rate = 0;
	t->round_lost = 0;
	t->round_acked = 0;
	/* Without an RTT sample, as in a round of retransmissions, use min_rtt: the last RTT may
	 * contain a queue that is gone, and would slow the pace. */
	t->rtt = t->round_rtt ? t->round_rtt : t->min_rtt;
	t->round_rtt = 0;
	t->round_rtt_max = 0;
	t->round_rtt_sum = 0;
	t->round_rtts = 0;
	t->round_inflight = 0;
	t->round_app_limited = 0;
	t->judged = t->round_mode;
	t->round_mode = t->mode;
}

/* Whether the flow has found its rate: it is in STEADY or in a pause of STEADY. */
CC_INLINE u8 tcpa_settled(const struct tcpa *t)
{
	return t->mode == TCPA_STEADY || t->mode == TCPA_PAUSE;
}

CC_INLINE void tcpa_set_mark(struct tcpa_mark *mark, const struct cc_ack *ack)
{
	mark->at_us = ack->now_us;
	mark->delivered = ack->delivered;
}

/* Begin to drain the excess that start-up sent. */
CC_INLINE void tcpa_begin_drain(struct tcpa *t)
{
	t->mode = TCPA_DRAIN;
	t->slump = t->start;
	t->full_rounds = 0;
}

CC_INLINE u64 tcpa_round_sent(const struct tcpa *t)
{
	return (u64)t->round_lost + t->round_acked;
}

/* The share of packets lost in the last round, of 1024. */
CC_INLINE u32 tcpa_round_share(const struct tcpa *t)
{
	return (u32)cc_div((u64)t->round_lost * CC_ONE, tcpa_round_sent(t));
}

/* The share to take from the window for the loss of this round, of 1024. */
CC_INLINE u32 tcpa_cut(const struct tcpa *t, u32 least)
{
	return (u32)cc_max(cc_min(tcpa_round_share(t), TCPA_MOST_CUT), least);
}

/* Whether the fastest packet of the round met a queue. */
CC_INLINE u8 tcpa_queued(const struct tcpa *t)
{
	u32 slack = (u32)tcpa_queue_slack(t);

	return t->round_rtt > t->min_rtt + slack;
}

/* Whether the fastest packet of the round met almost no queue. */
CC_INLINE u8 tcpa_drained(const struct tcpa *t)
{
	return t->round_rtt && t->round_rtt <= t->min_rtt + tcpa_noise(t->min_rtt);
}

/* Whether the round had enough segments to measure more than the receiver's delayed-ACK timer. */
CC_INLINE u8 tcpa_told(const struct tcpa *t)
{
	return t->round_acked >= tcpa_least_flight(t);
}

#endif
