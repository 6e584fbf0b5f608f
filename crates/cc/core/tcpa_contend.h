/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Behaviour beside rivals, flows that fill the queue: CUBIC's window (RFC 9438). A flow that held
 * a small queue would leave all bandwidth to rivals.
 */
#ifndef WEIR_CC_TCPA_CONTEND_H
#define WEIR_CC_TCPA_CONTEND_H

#include "tcpa_loss.h"

/* Cube root of a value from 10^6 to 2^54, by Newton as in tcpa_root. */
CC_INLINE u32 tcpa_cube_root(u64 of)
{
	u64 root = 1U << 18;
	u32 step;

	for (step = 0; step < 24; step++)
		root = (2 * root + of / (root * root)) / 3;
	return (u32)root;
}

CC_INLINE void tcpa_meet_rival(struct tcpa *t, u64 now_us, u32 window)
{
	if (!t->rival) {
		t->patience = t->quiet_looks > 2 * TCPA_PATIENCE_MOST ? TCPA_PATIENCE :
			(u8)cc_min(2U * t->patience, TCPA_PATIENCE_MOST);
		t->echoes = 0;
		t->unanswered = 0;
		t->haste = 0;
		t->quiet_looks = 0;
		t->peak = window;
		t->peak_at_us = now_us;
		/* Begin at the plateau of the cubic curve, without a reduction: this flow has
		 * already reduced its window gradually. */
		t->cut = 0;
		t->debt = 0;
	}
	t->rival = t->patience;
}

/* CUBIC's window at this time after a loss, in bytes (RFC 9438, 4.2). */
CC_INLINE u64 tcpa_cubic(const struct tcpa *t, u64 now_us)
{
	u64 best = t->peak / t->mss;
	/* The time since the peak in ms; at most 200 s, so that its cube fits 64 bits. */
	u64 passed = cc_min((now_us - t->peak_at_us + t->rtt) / 1000, 200000);
	/* K in ms: the cube root of best * cut / 0.4 seconds; 10^9 / (1024 * 0.4) = 2441406. */
	u64 k = tcpa_cube_root(cc_max(best, 1) * t->cut * 2441406ULL);
	u64 off = passed > k ? passed - k : k - passed;
	/* 0.4 * (off / 1000)^3 */
	u64 segments = off * off * off / 2500000000ULL;

	return (passed > k ? best + segments : cc_less(best, segments)) * t->mss;
}

/* Enlarge the window up to CUBIC's window, by at least `least` bytes a round. */
CC_INLINE void tcpa_grow(struct tcpa *t, const struct cc_ack *ack, u32 least)
{
	u64 wanted = tcpa_cubic(t, ack->now_us);

	t->window += least;
	if (wanted > t->window)
		t->window += (u32)cc_min(wanted - t->window, t->window / 8);
}

/* The growth that doubles the window in half a second (1 / 640 for each ms), but in no more than
 * sixteen rounds and no fewer than eight. */
CC_INLINE u64 tcpa_catch_up(const struct tcpa *t)
{
	u64 step = (u64)t->window * cc_min(t->rtt, TCPA_MOST_GROWTH_US) / 640000U;

	return cc_min(cc_max(step, t->window / 16), t->window / 8);
}

/* Behave as the rivals, which fill the queue. There are three exceptions: the path's own loss, loss
 * that recurs however little the flow sends, and rivals that leave too small a share. */
CC_INLINE void tcpa_contend(struct tcpa *t, const struct cc_ack *ack)
{
	u32 floor = tcpa_floor(t);
	/* A flow with less than a third of the path need not reduce as its rivals do. */
	u8 poor = t->average < t->capacity / 3;
	u8 ignored = t->unanswered >= TCPA_DEAF_LOSSES && t->average < t->capacity / 2;
	u8 deaf = (ignored || poor) && !tcpa_small(t);
	u32 tolerated = deaf ? TCPA_DEAF_TOLERATED : TCPA_RIVAL_TOLERATED;
	u32 cut = deaf ? TCPA_DEAF_CUT : TCPA_RIVAL_CUT;
	u64 least;

	t->rival_rounds++;
	if (tcpa_owes(t, floor, tolerated, floor > 4 || deaf ? 2 : 0)) {
		t->debt = 0;
		if (t->echoes)
			return;
		/* If all flows had answered the last loss, this loss would have come later: after
		 * two fifths of a round for each segment of the window, or after 24 rounds. */
		if (t->rival_rounds < cc_min(2 * (t->window / t->mss) / 5, 24))
			t->unanswered = cc_count(t->unanswered, 8);
		else
			t->unanswered = (u8)cc_less(t->unanswered, 1);
		t->rival_rounds = 0;
		t->peak = t->window;
		t->peak_at_us = ack->now_us;
		t->cut = tcpa_cut(t, cut);
		t->window -= (u32)cc_scale(t->window, t->cut);
		t->echoes = TCPA_ECHO_ROUNDS;
		return;
	}
	t->echoes = (u8)cc_less(t->echoes, 1);
	if (t->starved)
		return;
	/* Grow at least as CUBIC's Reno-friendly window does on short paths: by 3 (1 - 0.7) /
	 * (1 + 0.7) segments a round. Add a sixteenth of the window each second, because CUBIC's
	 * curve does not scale with the window. */
	least = cc_min(t->mss / 2, t->window / 8);
	if (deaf)
		least += tcpa_catch_up(t);
	else
		least += (u64)t->window * cc_min(t->rtt, TCPA_MOST_GROWTH_US) >> 24;
	tcpa_grow(t, ack, (u32)least);
}

#endif
