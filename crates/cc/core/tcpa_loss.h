/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The path's own loss, and loss caused by sending.
 */
#ifndef WEIR_CC_TCPA_LOSS_H
#define WEIR_CC_TCPA_LOSS_H

#include "tcpa_state.h"

/* Count a round for the floor. The sums are halved every thousand segments. */
CC_INLINE void tcpa_learn_floor(struct tcpa *t, u32 weight)
{
	t->floor_lost += weight * (u64)t->round_lost;
	t->floor_sent += weight * tcpa_round_sent(t);
	if (t->floor_sent > 1024ULL * t->mss) {
		t->floor_lost /= 2;
		t->floor_sent /= 2;
	}
}

/* Count a round for the loss in pauses, in the same way. */
CC_INLINE void tcpa_learn_pause(struct tcpa *t)
{
	t->pause_lost += t->round_lost;
	t->pause_sent += tcpa_round_sent(t);
	if (t->pause_sent > 1024ULL * t->mss) {
		t->pause_lost /= 2;
		t->pause_sent /= 2;
	}
}

/* Whether loss beyond the floor has added up to more than chance explains: a few segments, and more
 * where the path itself loses in bursts. Many small rounds count as much as a large one. */
CC_INLINE u8 tcpa_owes(struct tcpa *t, u32 floor, u32 tolerated, u32 chance)
{
	u64 sent = tcpa_round_sent(t);
	u64 burst = cc_min(cc_max(cc_div(t->round_lost / t->mss, t->round_bursts), 1), 8);
	u64 segments = chance + burst * cc_min(160 * floor / CC_ONE, 8);

	t->debt = cc_less(t->debt + t->round_lost, cc_scale(sent, floor + floor / 2 + tolerated));
	return t->debt > segments * t->mss;
}

/* No packet of this round met a queue as large as the largest that stood earlier. */
CC_INLINE u8 tcpa_below_room(const struct tcpa *t)
{
	return cc_less(t->round_rtt_max, t->min_rtt) < t->room / 4 * 3;
}

/* The path has held a larger queue than any packet of this round met. */
CC_INLINE u8 tcpa_roomy(const struct tcpa *t, u32 queue)
{
	return t->room > 2 * queue && tcpa_below_room(t);
}

#endif
