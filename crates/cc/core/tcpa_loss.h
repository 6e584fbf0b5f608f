/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The path's own loss (the floor), and loss caused by sending (the debt).
 *
 * A flow measures the floor in pauses, where all flows send less, and in rounds without a queue.
 * Loss beyond one and a half floors is debt. Debt adds up from round to round, so that ten flows
 * with a window of ten segments reduce as often as one flow with a window of a hundred.
 */
#ifndef WEIR_CC_TCPA_LOSS_H
#define WEIR_CC_TCPA_LOSS_H

#include "tcpa_state.h"

/* Count a round for the floor. The sums decay, because a path's loss changes. */
CC_INLINE void tcpa_learn_floor(struct tcpa *t, u32 weight)
{
	t->floor_lost += weight * (u64)t->round_lost;
	t->floor_sent += weight * tcpa_round_sent(t);
	if (t->floor_sent > (u64)TCPA_FLOOR_SEGMENTS * t->mss) {
		t->floor_lost /= 2;
		t->floor_sent /= 2;
	}
}

/* Count a round for the loss in pauses, as tcpa_learn_floor counts a round for the floor. */
CC_INLINE void tcpa_learn_pause(struct tcpa *t)
{
	t->pause_lost += t->round_lost;
	t->pause_sent += tcpa_round_sent(t);
	if (t->pause_sent > (u64)TCPA_FLOOR_SEGMENTS * t->mss) {
		t->pause_lost /= 2;
		t->pause_sent /= 2;
	}
}

/* Whether the debt exceeds what chance explains: `chance` segments, and up to eight bursts more on
 * a path that loses by itself. A burst is the mean loss of an ACK that reported a loss, up to eight
 * segments. 160 / 1024: with a floor of a tenth, all eight bursts count. */
CC_INLINE u8 tcpa_owes(struct tcpa *t, u32 floor, u32 tolerated, u32 chance)
{
	u64 sent = tcpa_round_sent(t);
	u64 burst = cc_min(cc_max(cc_div(t->round_lost / t->mss, t->round_bursts), 1), 8);
	u64 segments = chance + burst * cc_min(160 * floor / CC_ONE, 8);

	t->debt = cc_less(t->debt + t->round_lost, cc_scale(sent, floor + floor / 2 + tolerated));
	return t->debt > segments * t->mss;
}

/* Whether every packet of this round met less than three quarters of `room`, the largest queue that
 * stood for a round. */
CC_INLINE u8 tcpa_below_room(const struct tcpa *t)
{
	return cc_less(t->round_rtt_max, t->min_rtt) < t->room / 4 * 3;
}

/* Whether `room` is larger than twice `queue`, and larger than the queue that any packet of this
 * round met. */
CC_INLINE u8 tcpa_roomy(const struct tcpa *t, u32 queue)
{
	return t->room > 2 * queue && tcpa_below_room(t);
}

#endif
