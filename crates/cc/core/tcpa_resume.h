/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Careful resume (draft-ietf-tsvwg-careful-resume): start from an earlier connection's estimate of
 * the path.
 *
 * If the handshake took about the remembered round trip, send a first window at the remembered
 * rate: a train of packets that a slower path delivers at its own rate. Use all of the rate only if
 * the train's acknowledgements arrive about as fast. If the acknowledgements show a queue or loss,
 * send nothing until the excess has left (the draft's safe retreat).
 */
#ifndef WEIR_CC_TCPA_RESUME_H
#define WEIR_CC_TCPA_RESUME_H

#include "tcpa_loss.h"

/* Share of the remembered bandwidth-delay product, a tenth: the length of the train, if that is
 * more than a first window. On a path ten times slower than remembered, the train queues one
 * bandwidth-delay product before the first answer. Test:
 * a_wrong_memory_costs_a_round_trip_of_queue_at_most of crates/sim. */
#define TCPA_RESUME_SHARE 100U
/* Gain from one part to the next, 1.75: less than the gain of start-up, because the flow detects a
 * part that is too large only a round trip later. Test as above. */
#define TCPA_RESUME_STEP 1792U
/* Gains over the remembered rate: of the last part (1.125), which makes a queue on a path of that
 * rate, and of the delivery above which the path counts as faster (1.09). */
#define TCPA_RESUME_GAIN 1152U
#define TCPA_RESUME_MORE 1120U
/* Rounds in which the receiver or the application may limit the flow. */
#define TCPA_RESUME_ROUNDS 3U
/* s (10 min). If the memory is older, the flow uses a smaller share of the remembered rate. The
 * memories of all labs are younger. */
#define TCPA_RESUME_FRESH_S 600U
/* Segments: the shortest ACK train that gives a rate, as TCPA_TRAIN_SEGMENTS. */
#define TCPA_RESUME_SEGMENTS 8U

/* Whether the memory fits the handshake's RTT. False on another path, and if the handshake met a
 * queue. */
CC_INLINE u8 tcpa_is_that_path(const struct cc_path *path)
{
	u64 rtt = path->handshake_rtt_us;
	u64 remembered = path->memory.min_rtt_us;

	return path->memory.rate && rtt && remembered && rtt * 2 >= remembered &&
	       rtt <= remembered + remembered / 2 + TCPA_SLACK_US;
}

/* Set the first window from the memory. If the whole path holds less than the usual first window,
 * the window is no larger than the path. */
CC_INLINE void tcpa_recall(struct tcpa *t, const struct cc_path *path)
{
	u64 product, part;
	u32 share;

	if (!tcpa_is_that_path(path))
		return;
	t->remembered = cc_min(path->memory.rate, CC_MOST_RATE);
	product = cc_bytes_in(t->remembered,
			      cc_min(path->handshake_rtt_us, path->memory.min_rtt_us));
	share = TCPA_RESUME_SHARE * TCPA_RESUME_FRESH_S /
		(u32)cc_max(path->memory.age_s, TCPA_RESUME_FRESH_S);
	part = cc_scale(product, share);
	product = cc_scale(product, TCPA_RESUME_GAIN) + tcpa_least_flight(t);
	t->cwnd = tcpa_clamp_window(cc_max(part, cc_min(product, t->cwnd)), t->mss);
	t->resuming = TCPA_AWAITING;
	/* The earlier connection's pauses established min_rtt. */
	t->sure = path->handshake_rtt_us <=
		  path->memory.min_rtt_us + tcpa_noise(path->memory.min_rtt_us);
}

/* End resuming. The interval of tcpa_slump.h continues the measured train. */
CC_INLINE void tcpa_end_resume(struct tcpa *t)
{
	if (!t->resuming)
		return;
	t->resuming = TCPA_AFRESH;
	t->slump = t->start;
}

/* The path delivers no more than `rate`: drain the excess first. */
CC_INLINE void tcpa_found(struct tcpa *t, u64 rate)
{
	t->known = rate;
	t->rate[0] = rate;
	t->rate[1] = 0;
	t->average = rate;
	t->full_rate = rate;
	tcpa_begin_drain(t);
}

/* The path delivers less than the remembered rate: continue at `rate`. */
CC_INLINE void tcpa_retreat(struct tcpa *t, u64 rate)
{
	tcpa_end_resume(t);
	tcpa_found(t, rate);
	t->cwnd = tcpa_clamp_window(tcpa_bdp(t), tcpa_least_flight(t));
}

/* The path delivered `rate`: send the next part of the remembered rate, but reach the whole rate no
 * sooner than start-up would. */
CC_INLINE void tcpa_go_on(struct tcpa *t, u64 rate)
{
	t->resuming = TCPA_AWAITING;
	tcpa_pace(t, cc_min(cc_scale(rate, TCPA_RESUME_STEP),
			    cc_scale(t->remembered, TCPA_RESUME_GAIN)));
	t->cwnd = tcpa_clamp_window(cc_bytes_in(t->pacing, t->min_rtt), 0) +
		  TCPA_LEAST_SEGMENTS * t->mss;
}

/* The rate that the flow used, if the application or the receiver limited the flow. A first window
 * always counts in full. */
CC_INLINE u64 tcpa_used(const struct tcpa *t)
{
	u64 first = (u64)t->params.init_cwnd * t->mss;
	u64 bytes = cc_max(t->round_inflight, cc_min(t->cwnd, first));

	return cc_min(t->pacing, cc_rate(bytes, t->min_rtt));
}

/* Whether the flow sends at the whole remembered rate. */
CC_INLINE u8 tcpa_is_all(const struct tcpa *t)
{
	return t->pacing >= cc_scale(t->remembered, TCPA_RESUME_GAIN);
}

CC_INLINE u8 tcpa_is_more(const struct tcpa *t)
{
	return t->round_rate >= cc_scale(t->remembered, TCPA_RESUME_MORE);
}

/* Whether the flow sent slightly more than the path carries in this round. */
CC_INLINE u8 tcpa_is_full(const struct tcpa *t)
{
	u64 queue = cc_less(cc_div(t->round_rtt_sum, t->round_rtts), t->min_rtt);

	return !tcpa_is_more(t) && queue > tcpa_noise(t->min_rtt);
}

/* Judge a part of the remembered rate by the rate of its ACKs, which is known sooner than a rate
 * sample that spans a round trip. */
CC_INLINE void tcpa_watch_resumed(struct tcpa *t, const struct cc_ack *ack)
{
	u64 passed = cc_less(ack->now_us, t->start.at_us);
	u64 came = cc_less(ack->delivered, t->start.delivered);
	u64 rate = cc_rate(cc_min(came, CC_MOST_RATE), passed);
	u64 slack = tcpa_queue_slack(t);
	u8 slower;
	u8 lossy = t->round_lost > 4ULL * t->mss && tcpa_round_share(t) > TCPA_MOST_FLOOR;
	u8 queued;

	/* These ACKs are for packets sent at a lower rate: only a larger queue shows that even the
	 * lower rate was too high. */
	if (t->resuming == TCPA_AWAITING)
		slack *= 2;
	queued = ack->rtt_us > t->min_rtt + slack;
	if (passed < cc_max(t->min_rtt / 16, TCPA_SLACK_US / 2) ||
	    came < (u64)TCPA_RESUME_SEGMENTS * t->mss)
		return;
	/* Use the round's highest rate: no ACK arrives between the end of a train and the packets
	 * that the train's ACKs release. */
	t->full_rate = cc_max(t->full_rate, rate);
	slower = t->full_rate < t->pacing / 4 * 3;
	/* Ignore the rate if less than the allowance was in flight. */
	if (slower && (queued || lossy) && !tcpa_underused(t))
		tcpa_retreat(t, t->full_rate);
	else if (t->resuming == TCPA_HEARING && !slower && !queued && !tcpa_is_all(t)) {
		tcpa_go_on(t, t->pacing);
		tcpa_begin_round(t, ack);
	}
}

/* Judge a round that ended while resuming. */
CC_INLINE void tcpa_judge_resumed(struct tcpa *t, const struct cc_ack *ack)
{
	u64 rate;

	if (t->resuming == TCPA_AWAITING) {
		t->resuming = TCPA_HEARING;
		tcpa_set_mark(&t->start, ack);
		t->full_rate = 0;
		return;
	}
	if (t->starved && !tcpa_queued(t)) {
		if (!tcpa_is_all(t))
			tcpa_go_on(t, tcpa_used(t));
		return;
	}
	/* The whole remembered rate fills the path. */
	if (tcpa_is_all(t) && tcpa_is_full(t)) {
		tcpa_begin_drain(t);
		return;
	}
	/* The flow sent less than the path holds. After several such rounds the difference is
	 * small. */
	if (tcpa_is_all(t) && !tcpa_is_more(t)) {
		t->full_rounds++;
		if (t->full_rounds > TCPA_RESUME_ROUNDS)
			tcpa_begin_drain(t);
		return;
	}
	/* The path has become faster, or the flow could measure no rate: continue as without a
	 * memory. */
	tcpa_end_resume(t);
	t->known = t->remembered;
	t->full_rate = t->round_rate;
	rate = cc_scale(tcpa_rate(t), TCPA_STARTUP_GAIN);
	tcpa_pace(t, rate);
	t->cwnd = tcpa_clamp_window(cc_min(t->cwnd, cc_bytes_in(rate, t->min_rtt)),
				    tcpa_least_flight(t));
}

/* Update the rate to remember, from rounds that used the whole window. */
CC_INLINE void tcpa_learn_rate(struct tcpa *t)
{
	if (t->starved)
		return;
	t->known = t->known ? t->known - t->known / 8 + t->average / 8 : t->average;
}

/* Write the memory at the end of a connection. Returns whether there is a rate to remember; after a
 * connection that never used its whole window, the old memory stays. */
CC_INLINE u32 tcpa_note(const struct tcpa *t, struct cc_memory *memory)
{
	u64 rate = t->known;
	u64 best = tcpa_settled(t) ? t->capacity : t->full_rate;

	if (t->resuming || !t->min_rtt)
		return 0;
	/* A file may end before the path is full, so the path carries at least this rate. Remember
	 * only a rate that the next connection could not find with its first window. */
	if (t->mode == TCPA_STARTUP)
		rate = tcpa_bdp(t) > 2ULL * t->params.init_cwnd * t->mss ?
			       cc_max(rate, tcpa_rate(t)) : 0;
	/* Use almost the best rate, because the last rounds of a file are not full, and the next
	 * connection's train detects a rate that is too high sooner than one that is too low. */
	else if (rate && !t->rival)
		rate = cc_max(rate, best - best / 16);
	memory->rate = rate;
	memory->min_rtt_us = t->min_rtt;
	memory->age_s = 0;
	return rate != 0;
}

#endif
