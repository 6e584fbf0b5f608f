/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CAQM's hosts. Every increase of the window is a request that the ports on the way approve, trim or refuse; the
 * receiver sums up what is left of them and sends it back.
 *
 * The sender begins in `start` and asks for one unit with each segment, which doubles the window in a round trip
 * where all is approved. From the first answer that is not positive on it asks for `alpha` units in a round trip, or
 * for `alpha_root` by the root of its window, if that is more.
 * Answers are bytes; each whole unit of them moves the window by one segment.
 */
#ifndef WEIR_CC_CAQM_H
#define WEIR_CC_CAQM_H

#include "contract.h"

/* One for all hosts and ports of a network. */
struct caqm_params {
	u32 alpha; /* in eighths of a unit, in a round trip */
	u32 beta; /* bytes: what a refusal takes */
	u32 min_cwnd; /* segments */
	u32 max_cwnd; /* segments */
	u32 mtu_unit; /* bytes */
	u32 data_unit; /* bytes of a hint on data */
	u32 ack_unit; /* bytes of a hint on an acknowledgement */
	u32 rtt_standard_us; /* the round trip for which alpha is meant */
	/* In eighths of a unit, in a round trip, for each root of a segment of the window; 0: alpha alone. What refusals
	 * take in a round trip grows with the windows: where alpha stays as it is, n windows of together W segments come
	 * together within some W / (n alpha) round trips, which is hundreds on a path of a few hundred segments. And a
	 * newcomer whom a refusal met at once comes to w segments in some 16 root(w) / alpha_root, which is why it is not
	 * smaller. */
	u32 alpha_root;
};

struct caqm_sender {
	struct caqm_params params;
	u64 round_began_us;
	u64 refused_us; /* when a window was last taken back, or start was left */
	u64 share; /* of hints not yet asked for, in 1/2^20 */
	u32 cwnd; /* segments */
	u32 rtt_us;
	u32 gained; /* bytes of answers that are no whole unit yet */
	u32 taken;
	u32 asked; /* bytes, in this round trip ... */
	u32 asked_before; /* ... and in the one before */
	u32 start;
	u32 heard; /* an answer was not positive: some port on the way speaks */
	u32 before; /* the window before the latest loss that took of it; 0: none */
	u32 begun; /* the window when this round trip began */
};

struct caqm_receiver {
	u32 more; /* bytes to be answered */
	u32 fewer;
};

#define CAQM_HINT 255U
#define CAQM_SHARE 20
/* So many segments larger a window counts under its root. A hint holds less than two units, and without that all the
 * smallest windows would ask for as much: ports that take the larger share of whoever asks for less could not tell
 * them apart. */
#define CAQM_FEW 4ULL
/* Without a refusal for so many round trips there is room: the window may double again. */
#define CAQM_THETA 10U
/* A queue that overflows behind a port that speaks was announced by refusals not longer ago than so many. */
#define CAQM_ANNOUNCES 4U
/* What no honest network sets, and what keeps every product below within 64 bits. */
#define CAQM_MOST_UNIT 65536U
#define CAQM_MOST_CWND (1U << 20)
#define CAQM_MOST_BYTES (1U << 30)

CC_INLINE u32 caqm_bound(u32 value, u32 least, u32 most)
{
	return (u32)cc_min(cc_max(value, least), most);
}

CC_INLINE void caqm_init(struct caqm_sender *s, const struct caqm_params *params, u32 cwnd,
			 u32 rtt_us, u64 now_us)
{
	s->params = *params;
	s->params.alpha = caqm_bound(params->alpha, 1, 64);
	s->params.beta = caqm_bound(params->beta, 1, CAQM_MOST_UNIT);
	s->params.mtu_unit = caqm_bound(params->mtu_unit, 64, CAQM_MOST_UNIT);
	s->params.data_unit = caqm_bound(params->data_unit, 1, 1024);
	s->params.ack_unit = caqm_bound(params->ack_unit, 1, 1024);
	s->params.rtt_standard_us = caqm_bound(params->rtt_standard_us, 1, 1000000);
	s->params.min_cwnd = caqm_bound(params->min_cwnd, 1, 1024);
	s->params.alpha_root = caqm_bound(params->alpha_root, 0, 64);
	s->params.max_cwnd = caqm_bound(params->max_cwnd, s->params.min_cwnd, CAQM_MOST_CWND);
	s->cwnd = caqm_bound(cwnd, s->params.min_cwnd, s->params.max_cwnd);
	s->rtt_us = rtt_us;
	s->round_began_us = now_us;
	s->refused_us = now_us;
	s->share = 0;
	s->gained = 0;
	s->taken = 0;
	s->asked = 0;
	s->asked_before = 0;
	s->start = 1;
	s->heard = 0;
	s->before = 0;
	s->begun = s->cwnd;
}

/* The measured round trip where it is one that alpha was meant for, give or take a factor of four. */
CC_INLINE u32 caqm_rtt(const struct caqm_sender *s)
{
	u32 standard = s->params.rtt_standard_us;

	if (s->rtt_us < standard / 4 || s->rtt_us / 4 > standard)
		return standard;
	return s->rtt_us;
}

CC_INLINE void caqm_measured(struct caqm_sender *s, u32 rtt_us, u64 now_us)
{
	u64 round;

	if (rtt_us)
		s->rtt_us = rtt_us;
	round = s->rtt_us ? s->rtt_us : s->params.rtt_standard_us;
	if (cc_less(now_us, s->round_began_us) >= round) {
		s->round_began_us = now_us;
		s->asked_before = s->asked;
		s->asked = 0;
		s->begun = s->cwnd;
	}
	if (!s->start && cc_less(now_us, s->refused_us) >= CAQM_THETA * round)
		s->start = 1;
}

/* The root of what is below 2^36, digit by digit. Without a branch: a kernel's verifier would go each way of each. */
CC_INLINE u32 caqm_root(u64 of)
{
	u64 root = 0, bit = 1ULL << 34, fits;

	for (u32 at = 0; at < 18; at++) {
		fits = ((of - root - bit) >> 63) - 1;
		of -= (root + bit) & fits;
		root = (root >> 1) + (bit & fits);
		bit >>= 2;
	}
	return (u32)root;
}

/* Of the window's growth in avoidance, each segment's part in data units, in 1/2^20. Either way it depends on the
 * rate alone and not on the round trip, so that connections with equal rates ask for the same. */
CC_INLINE u64 caqm_part(const struct caqm_sender *s)
{
	const struct caqm_params *p = &s->params;
	u64 rtt = caqm_rtt(s), flat, root;

	flat = ((u64)p->alpha * p->mtu_unit) << (CAQM_SHARE - 3);
	flat = cc_div(flat, (u64)p->data_unit * s->cwnd);
	flat = cc_div(flat * rtt, p->rtt_standard_us);
	/* In 1/2^16. */
	root = caqm_root(cc_div(rtt << 32, (u64)p->rtt_standard_us * s->cwnd + CAQM_FEW * rtt));
	root = ((u64)p->alpha_root * p->mtu_unit * root) << (CAQM_SHARE - 3 - 16);
	return cc_max(flat, cc_div(root, p->data_unit));
}

/* The hint that each of so many segments sent together is to bear. */
CC_INLINE u32 caqm_request(struct caqm_sender *s, u32 segments)
{
	const struct caqm_params *p = &s->params;
	u64 hint;
	u32 count = caqm_bound(segments, 1, 1024);

	if (s->cwnd >= p->max_cwnd)
		return 0;
	if (s->start) {
		hint = cc_min(cc_div(p->mtu_unit, p->data_unit), CAQM_HINT);
	} else {
		s->share += caqm_part(s) * count;
		hint = cc_min(cc_div(s->share, count) >> CAQM_SHARE, CAQM_HINT);
		s->share -= (hint * count) << CAQM_SHARE;
		/* What a hint cannot hold is not owed for ever. */
		s->share = cc_min(s->share, (u64)count << CAQM_SHARE);
	}
	s->asked = (u32)cc_min(s->asked + hint * count * p->data_unit, CAQM_MOST_BYTES);
	return (u32)hint;
}

/* The answers tell of queues, and a loss alone changes nothing; that nothing at all comes back says that
 * something is badly wrong. */
CC_INLINE void caqm_on_timeout(struct caqm_sender *s, u64 now_us)
{
	s->before = s->cwnd;
	s->cwnd = caqm_bound(s->cwnd / 2, s->params.min_cwnd, s->params.max_cwnd);
	s->start = 0;
	s->refused_us = now_us;
}

/*
 * A loss event begins. Where a port has refused of late its answers shrink the window, and the loss changes
 * nothing. Where none has, the loss was in a queue that does not speak: half of the window, as Reno has it, and no
 * doubling. True where no port on the way has ever refused: whoever asks further asks nobody, and the connection
 * goes on as Reno, without tags.
 */
CC_INLINE u32 caqm_on_loss(struct caqm_sender *s, u64 now_us)
{
	u64 round = s->rtt_us ? s->rtt_us : s->params.rtt_standard_us;

	s->before = 0;
	if (s->heard && cc_less(now_us, s->refused_us) < CAQM_ANNOUNCES * round)
		return 0;
	s->before = s->cwnd;
	s->cwnd = caqm_bound(s->cwnd / 2, s->params.min_cwnd, s->params.max_cwnd);
	s->start = 0;
	s->refused_us = now_us;
	return !s->heard;
}

/* Nothing had been lost. */
CC_INLINE void caqm_on_undo(struct caqm_sender *s)
{
	s->cwnd = (u32)cc_max(s->cwnd, s->before);
	s->before = 0;
}

/* After a pause nothing is known of the queue: not more than this window, and as at the beginning. */
CC_INLINE void caqm_on_idle(struct caqm_sender *s, u32 window)
{
	window = caqm_bound(window, s->params.min_cwnd, s->params.max_cwnd);
	s->cwnd = (u32)cc_min(s->cwnd, window);
	s->start = 1;
	s->gained = 0;
	s->taken = 0;
	s->share = 0;
	s->before = 0;
}

/* Not more than was asked for in this round trip and the one before: an answer that was forged, or comes
 * twice, gains nothing. */
CC_INLINE u32 caqm_believed(struct caqm_sender *s, u32 bytes)
{
	u32 believed = (u32)cc_min(bytes, (u64)s->asked + s->asked_before);
	u32 old = (u32)cc_min(believed, s->asked_before);

	s->asked_before -= old;
	s->asked -= believed - old;
	return believed;
}

/* An answer: `more` or `fewer` units, or neither. `limited`: the window bounds what is in flight. */
CC_INLINE void caqm_answer(struct caqm_sender *s, u32 more, u32 fewer, u32 limited, u64 now_us)
{
	const struct caqm_params *p = &s->params;
	u32 bytes, most;

	if (!more) {
		s->heard = 1;
		if (s->start) {
			s->start = 0;
			s->refused_us = now_us;
		}
	}
	if (fewer) {
		s->refused_us = now_us;
		bytes = caqm_bound(fewer, 0, CAQM_HINT) * p->ack_unit;
		/* What was gained and not used pays first. */
		if (s->gained >= bytes) {
			s->gained -= bytes;
			return;
		}
		s->taken += bytes - s->gained;
		s->gained = 0;
		s->cwnd = (u32)cc_max(cc_less(s->cwnd, cc_div(s->taken, p->mtu_unit)), p->min_cwnd);
		s->taken = s->taken % p->mtu_unit;
		return;
	}
	bytes = caqm_believed(s, caqm_bound(more, 0, CAQM_HINT) * p->ack_unit);
	if (!limited)
		return;
	if (s->taken >= bytes) {
		s->taken -= bytes;
		return;
	}
	s->gained += bytes - s->taken;
	s->taken = 0;
	/* It doubles in a round trip at most: what a larger window lets go asks again, and forged answers to that
	 * would make it larger at once. */
	most = (u32)cc_max(cc_min(2 * (u64)s->begun + 2, p->max_cwnd), s->cwnd);
	s->cwnd = (u32)cc_min(s->cwnd + cc_div(s->gained, p->mtu_unit), most);
	s->gained = s->gained % p->mtu_unit;
}

/* A data packet of so many segments has come, each with this hint. */
CC_INLINE void caqm_owe(struct caqm_receiver *r, const struct caqm_params *params, u32 more,
			u32 refused, u32 segments)
{
	u32 count = caqm_bound(segments, 1, 1024);
	u64 sum;

	if (refused) {
		sum = r->fewer + (u64)caqm_bound(params->beta, 1, CAQM_MOST_UNIT) * count;
		r->fewer = (u32)cc_min(sum, CAQM_MOST_BYTES);
	} else {
		sum = r->more + (u64)caqm_bound(more, 0, CAQM_HINT) * count *
					caqm_bound(params->data_unit, 1, 1024);
		r->more = (u32)cc_min(sum, CAQM_MOST_BYTES);
	}
	/* One pays for the other. */
	sum = cc_min(r->more, r->fewer);
	r->more -= (u32)sum;
	r->fewer -= (u32)sum;
}

/* What an acknowledgement is to tell, in units of its hint: taken off what is owed to the byte. Gives the units;
 * `fewer` tells which kind. */
CC_INLINE u32 caqm_tell(struct caqm_receiver *r, const struct caqm_params *params, u32 *fewer)
{
	u32 unit = caqm_bound(params->ack_unit, 1, 1024);
	u32 owed = r->fewer ? r->fewer : r->more;
	u32 units = (u32)cc_min(cc_div(owed, unit), CAQM_HINT);

	*fewer = r->fewer ? 1 : 0;
	if (r->fewer)
		r->fewer -= units * unit;
	else
		r->more -= units * unit;
	return units;
}

#endif
