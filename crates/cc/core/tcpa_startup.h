/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef WEIR_CC_TCPA_STARTUP_H
#define WEIR_CC_TCPA_STARTUP_H

#include "tcpa_resume.h"

/* Start-up is over when three rounds brought less than a quarter more, when a queue says so sooner, or when
 * far too much is lost. */
CC_INLINE void tcpa_judge_startup(struct tcpa *t, const struct cc_ack *ack)
{
	u32 share = tcpa_round_share(t);

	if (t->resuming) {
		tcpa_judge_resumed(t, ack);
		return;
	}
	if (t->mode != TCPA_STARTUP || !t->round_rate)
		return;
	if (share > 2 * TCPA_MOST_FLOOR) {
		t->lossy_rounds++;
		if (t->lossy_rounds > 1) {
			t->mode = TCPA_DRAIN;
			return;
		}
	}
	if (t->round_rate >= t->full_rate + t->full_rate / 4) {
		/* More is delivered, and there is no queue: what is lost is the path's. */
		if (tcpa_drained(t) && t->round_acked >= TCPA_SMALL_SEGMENTS * t->mss)
			tcpa_learn_floor(t, 1);
		t->full_rate = t->round_rate;
		t->full_rounds = 0;
		return;
	}
	if (t->starved && !tcpa_queued(t))
		return;
	t->full_rounds++;
	if (tcpa_queued(t) || t->full_rounds >= 3)
		t->mode = TCPA_DRAIN;
}

#endif
