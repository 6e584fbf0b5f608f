/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * CAQM on hosts: ports answer each request for a larger window
 *
 * A sender requests every increase of its window; the ports on the path approve, trim or refuse the
 * request. A packet carries the request as a hint, a number of units. The receiver sums up what
 * remains of the requests and sends the sum back on its ACKs.
 *
 *   sender, each segment     START  hint = one unit of growth: the window doubles in a round trip
 *                                   if all is approved
 *                            AVOID  hint = (alpha, or alpha_root * sqrt(window) if that is more)
 *                                          / segments of the round trip; the rest is carried over
 *   port, each segment       room: leave the hint; little room: clear it; none: refuse
 *   receiver, each segment   more += hint, or fewer += beta if refused; `more` and `fewer` cancel
 *   receiver, each ACK       report `more` or `fewer`, whichever is left
 *   sender, each answer      more:  gained += min(answer, asked); a whole unit adds a segment
 *                            fewer: taken += answer; a whole unit takes a segment
 *
 * Modes:
 *
 *            answer without growth, loss, timeout
 *     START ---------------------------------------> AVOID
 *       ^                                              |
 *       +-- theta round trips without refusal, or idle -+
 *
 *   mode   costs                                fails when
 *   START  one round trip of doubling beyond    no port on the path answers: the first loss ends
 *          the fair share                       it, and the connection goes on as Reno
 *   AVOID  the requests that are refused        a large window asks for less than a hint unit a
 *                                               segment: later segments carry the rest
 *
 * A loss changes nothing if a port refused lately, because its answers shrink the window already.
 * Otherwise the queue that dropped the packet is not a CAQM port's: the window is halved. With
 * `loss_as_reference` every loss halves the window.
 *
 * Words:
 *
 *   unit     `mtu_unit` bytes of answers: they move the window by one segment. Also what a hint
 *            counts: `data_hint_unit` bytes on data, `ack_hint_unit` bytes on an ACK
 *   hint     the number in a tag, at most 255
 *   refusal  a port's answer to a segment when it has no room: `beta` bytes less
 *   answer   a hint on an ACK
 *   heard    some port on the path has refused or trimmed a request: it runs CAQM
 *   share    the part of a request that is less than one hint unit, carried over to later segments
 *
 * docs/internals/caqm.md has the tag, the port and the reasons. The parameters' defaults and
 * reasons are in crates/cc/src/caqm/settings.rs and there.
 */
#ifndef WEIR_CC_CAQM_H
#define WEIR_CC_CAQM_H

#include "contract.h"

/* The parameters that all hosts and ports of a network share. */
struct caqm_params {
	u32 alpha; /* in eighths of a unit, per round trip */
	u32 beta; /* bytes taken by a refusal */
	u32 min_cwnd; /* segments */
	u32 max_cwnd; /* segments */
	u32 mtu_unit; /* bytes */
	u32 data_hint_unit; /* bytes of a hint on data */
	u32 ack_hint_unit; /* bytes of a hint on an acknowledgement */
	u32 rtt_standard_us; /* the round trip for which alpha is defined */
	/* The growth per round trip: this number of eighths of a unit, times the square root of the
	 * window in segments; 0: use alpha alone. Refusals take more per round trip as windows
	 * grow. With a constant alpha, n windows of together W segments converge within about W /
	 * (n alpha) round trips, which is hundreds on a path of a few hundred segments. If ports
	 * refuse a new flow at once, the flow reaches w segments in about 16 root(w) / alpha_root
	 * round trips, so a smaller value would be too slow. */
	u32 alpha_root;
	/* Round trips without a refusal, after which the window may double again; 0: never. */
	u32 theta;
	/* 1: as in the reference, each loss halves the window whatever the ports answered, and a
	 * timeout sets the least window. 0: a loss after a recent refusal changes nothing. */
	u32 loss_as_reference;
};

struct caqm_sender {
	struct caqm_params params;
	u64 round_began_us;
	u64 refused_us; /* when growth last met a refusal, a loss or a timeout */
	u64 share; /* growth not requested yet, in 1/2^20 of a hint unit */
	u32 cwnd; /* segments */
	u32 rtt_us; /* the last RTT sample; 0: none */
	u32 gained; /* bytes of answers for growth, less than a whole unit */
	u32 taken; /* bytes of answers against growth, less than a whole unit */
	u32 asked; /* bytes requested in this round trip */
	u32 asked_before; /* bytes requested in the previous round trip */
	u32 start; /* mode: 1 START, 0 AVOID */
	u32 heard; /* an answer brought no growth: some port on the path runs CAQM */
	u32 before; /* the window before the latest loss that reduced it; 0: none */
	u32 begun; /* the window at the start of this round trip */
};

struct caqm_receiver {
	u32 more; /* bytes of increases that no ACK has reported yet */
	u32 fewer;
};

/*
 * Constants: unit, reason, and the measurement that shows a change. docs/internals/caqm.md has the
 * results of `weir sim run caqm-fabric --quick --systems caqm` with CAQM_HINT to CAQM_ANNOUNCES
 * halved and doubled.
 */

/* Hint units: the largest number that a tag's hint of eight bits holds. */
#define CAQM_HINT 255U
/* Bits of the fraction in which `share` counts hint units: rounding then loses less than a
 * millionth of a unit with each segment. */
#define CAQM_SHARE 20
/* The largest part of a segment, which is larger than the largest hint. */
#define CAQM_MOST_PART (((u64)CAQM_HINT + 1) << CAQM_SHARE)
/* Segments: the offset of the window under the root. A hint holds less than two units, so without
 * the offset all the smallest windows would request the same, and ports, which take more from flows
 * that request less, could not distinguish these flows. Test:
 * many_windows_of_few_segments_share_a_caqm_port of crates/sim. */
#define CAQM_FEW 4ULL
/* Round trips within which a refusal announces the overflow of a CAQM port's queue. Test:
 * a_plain_bottleneck_behind_a_caqm_port_is_not_flooded of crates/sim. */
#define CAQM_ANNOUNCES 4U
/* Limits that no honest network exceeds, so that every product in this file fits 64 bits: bytes of
 * a unit, segments of a window, bytes of a sum. */
#define CAQM_MOST_UNIT 65536U
#define CAQM_MOST_CWND (1U << 20)
#define CAQM_MOST_BYTES (1U << 30)
/* Segments in one super-packet that share a hint: GSO and GRO merge fewer segments. */
#define CAQM_MOST_SEGMENTS 1024U
/* Bytes of a hint's unit: a hint of 255 units is at most 255 KiB. */
#define CAQM_MOST_HINT_UNIT 1024U
/* Eighths of a unit: the reference's limit. A hint holds less than two units at any alpha. */
#define CAQM_MOST_ALPHA 32767U
/* Eighths of a unit, for `alpha_root`: the value 64 gives eight units a round trip times the root
 * of the window. */
#define CAQM_MOST_ROOT 64U
#define CAQM_MOST_THETA 1000U

CC_INLINE u32 caqm_bound(u32 value, u32 least, u32 most)
{
	return (u32)cc_min(cc_max(value, least), most);
}

CC_INLINE void caqm_init(struct caqm_sender *s, const struct caqm_params *params, u32 cwnd,
			 u32 rtt_us, u64 now_us)
{
	s->params = *params;
	s->params.alpha = caqm_bound(params->alpha, 1, CAQM_MOST_ALPHA);
	s->params.beta = caqm_bound(params->beta, 1, CAQM_MOST_UNIT);
	s->params.mtu_unit = caqm_bound(params->mtu_unit, 64, CAQM_MOST_UNIT);
	s->params.data_hint_unit = caqm_bound(params->data_hint_unit, 1, CAQM_MOST_HINT_UNIT);
	s->params.ack_hint_unit = caqm_bound(params->ack_hint_unit, 1, CAQM_MOST_HINT_UNIT);
	s->params.rtt_standard_us = caqm_bound(params->rtt_standard_us, 1, 1000000);
	s->params.min_cwnd = caqm_bound(params->min_cwnd, 1, 1024);
	s->params.alpha_root = caqm_bound(params->alpha_root, 0, CAQM_MOST_ROOT);
	s->params.theta = caqm_bound(params->theta, 0, CAQM_MOST_THETA);
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

/* The measured RTT if it is within a factor of four of the RTT that alpha is defined for. */
CC_INLINE u32 caqm_rtt(const struct caqm_sender *s)
{
	u32 standard = s->params.rtt_standard_us;

	if (s->rtt_us < standard / 4 || s->rtt_us / 4 > standard)
		return standard;
	return s->rtt_us;
}

/* The measured RTT, without the bounds of caqm_rtt. */
CC_INLINE u64 caqm_round(const struct caqm_sender *s)
{
	return s->rtt_us ? s->rtt_us : s->params.rtt_standard_us;
}

/* Halve the window, and leave START or begin the wait for START anew. */
CC_INLINE void caqm_halve(struct caqm_sender *s, u64 now_us)
{
	s->before = s->cwnd;
	s->cwnd = caqm_bound(s->cwnd / 2, s->params.min_cwnd, s->params.max_cwnd);
	s->start = 0;
	s->refused_us = now_us;
}

CC_INLINE void caqm_measured(struct caqm_sender *s, u32 rtt_us, u64 now_us)
{
	u64 round;

	if (rtt_us)
		s->rtt_us = rtt_us;
	round = caqm_round(s);
	if (cc_less(now_us, s->round_began_us) >= round) {
		s->round_began_us = now_us;
		s->asked_before = s->asked;
		s->asked = 0;
		s->begun = s->cwnd;
	}
	if (!s->start && s->params.theta &&
	    cc_less(now_us, s->refused_us) >= s->params.theta * round)
		s->start = 1;
}

/* Square root of a value below 2^36, digit by digit and without branches, because the kernel's
 * verifier would follow both sides of every branch. */
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

/* Each segment's part of the window's growth in avoidance, in 1/2^20 of a data unit. Both terms
 * depend on the rate alone and not on the round trip, so that connections with equal rates ask for
 * the same. */
CC_INLINE u64 caqm_part(const struct caqm_sender *s)
{
	const struct caqm_params *p = &s->params;
	u64 rtt = caqm_rtt(s), flat, root;

	flat = ((u64)p->alpha * p->mtu_unit) << (CAQM_SHARE - 3);
	/* Limit `flat` to 2^34, so that the product with an RTT fits; a hint holds less than
	 * 2^34. */
	flat = cc_min(cc_div(flat, (u64)p->data_hint_unit * s->cwnd), (u64)CAQM_MOST_PART << 4);
	flat = cc_div(flat * rtt, p->rtt_standard_us);
	/* The root is in 1/2^16. */
	root = caqm_root(cc_div(rtt << 32, (u64)p->rtt_standard_us * s->cwnd + CAQM_FEW * rtt));
	root = ((u64)p->alpha_root * p->mtu_unit * root) << (CAQM_SHARE - 3 - 16);
	return cc_min(cc_max(flat, cc_div(root, p->data_hint_unit)), CAQM_MOST_PART);
}

/* The hint that each of `segments` segments sent together carries. */
CC_INLINE u32 caqm_request(struct caqm_sender *s, u32 segments)
{
	const struct caqm_params *p = &s->params;
	u64 hint;
	u32 count = caqm_bound(segments, 1, CAQM_MOST_SEGMENTS);

	if (s->cwnd >= p->max_cwnd)
		return 0;
	if (s->start) {
		hint = cc_min(cc_div(p->mtu_unit, p->data_hint_unit), CAQM_HINT);
	} else {
		s->share += caqm_part(s) * count;
		hint = cc_min(cc_div(s->share, count) >> CAQM_SHARE, CAQM_HINT);
		s->share -= (hint * count) << CAQM_SHARE;
		/* Do not carry over more than a hint can hold. */
		s->share = cc_min(s->share, (u64)count << CAQM_SHARE);
	}
	s->asked = (u32)cc_min(s->asked + hint * count * p->data_hint_unit, CAQM_MOST_BYTES);
	return (u32)hint;
}

/* Halve the window after a timeout. Answers report queues, so a loss alone does not change the
 * window, but after a timeout no answers arrive at all. */
CC_INLINE void caqm_on_timeout(struct caqm_sender *s, u64 now_us)
{
	if (!s->params.loss_as_reference) {
		caqm_halve(s, now_us);
		return;
	}
	s->before = s->cwnd;
	s->cwnd = s->params.min_cwnd;
}

/*
 * Begin a loss event. If a port has refused lately, its answers shrink the window, and the loss
 * does not change it. If no port has, the loss happened in a queue without CAQM: halve the window,
 * as Reno does, and stop doubling.
 * Returns true if no port on the path has ever refused: requests have no recipient then, and the
 * connection continues as Reno, without tags.
 */
CC_INLINE u32 caqm_on_loss(struct caqm_sender *s, u64 now_us)
{
	u64 round = caqm_round(s);

	if (s->params.loss_as_reference) {
		s->before = s->cwnd;
		s->cwnd = caqm_bound(s->cwnd / 2, 2, s->params.max_cwnd);
		return 0;
	}
	s->before = 0;
	if (s->heard && cc_less(now_us, s->refused_us) < CAQM_ANNOUNCES * round)
		return 0;
	caqm_halve(s, now_us);
	return !s->heard;
}

/* Restore the window that a spurious loss reduced. */
CC_INLINE void caqm_on_undo(struct caqm_sender *s)
{
	s->cwnd = (u32)cc_max(s->cwnd, s->before);
	s->before = 0;
}

/* After an idle period the state of the queue is unknown: keep at most this window, and return to
 * START. Without theta the sender never returns to START. */
CC_INLINE void caqm_on_idle(struct caqm_sender *s, u32 window)
{
	window = caqm_bound(window, s->params.min_cwnd, s->params.max_cwnd);
	s->cwnd = (u32)cc_min(s->cwnd, window);
	if (!s->params.theta)
		return;
	s->start = 1;
	s->gained = 0;
	s->taken = 0;
	s->share = 0;
	s->before = 0;
}

/* Accept at most the requests of this and the previous round trip, so that a forged or duplicate
 * answer gains nothing. */
CC_INLINE u32 caqm_believed(struct caqm_sender *s, u32 bytes)
{
	u32 believed = (u32)cc_min(bytes, (u64)s->asked + s->asked_before);
	u32 old = (u32)cc_min(believed, s->asked_before);

	s->asked_before -= old;
	s->asked -= believed - old;
	return believed;
}

/* Process an answer of `more` or `fewer` units, or none. `limited`: the window limits the flow. */
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
		bytes = caqm_bound(fewer, 0, CAQM_HINT) * p->ack_hint_unit;
		/* Deduct the refusal from `gained` first, which has not enlarged the window yet. */
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
	bytes = caqm_believed(s, caqm_bound(more, 0, CAQM_HINT) * p->ack_hint_unit);
	if (!limited)
		return;
	if (s->taken >= bytes) {
		s->taken -= bytes;
		return;
	}
	s->gained += bytes - s->taken;
	s->taken = 0;
	/* Let the window at most double per round trip: a larger window sends more requests, and
	 * forged answers to these requests would enlarge the window further at once. */
	most = (u32)cc_max(cc_min(2 * (u64)s->begun + 2, p->max_cwnd), s->cwnd);
	s->cwnd = (u32)cc_min(s->cwnd + cc_div(s->gained, p->mtu_unit), most);
	s->gained = s->gained % p->mtu_unit;
}

/* Count a data packet of `segments` segments, each with this hint. */
CC_INLINE void caqm_owe(struct caqm_receiver *r, const struct caqm_params *params, u32 more,
			u32 refused, u32 segments)
{
	u32 count = caqm_bound(segments, 1, CAQM_MOST_SEGMENTS);
	u64 sum;

	if (refused) {
		sum = r->fewer + (u64)caqm_bound(params->beta, 1, CAQM_MOST_UNIT) * count;
		r->fewer = (u32)cc_min(sum, CAQM_MOST_BYTES);
	} else {
		sum = r->more + (u64)caqm_bound(more, 0, CAQM_HINT) * count *
					caqm_bound(params->data_hint_unit, 1, CAQM_MOST_HINT_UNIT);
		r->more = (u32)cc_min(sum, CAQM_MOST_BYTES);
	}
	/* Cancel `more` against `fewer`. */
	sum = cc_min(r->more, r->fewer);
	r->more -= (u32)sum;
	r->fewer -= (u32)sum;
}

/* Return the units that an ACK reports in its hint, and deduct their bytes from the receiver's sum.
 * `fewer` tells whether the units come from the sum `fewer` or from `more`. */
CC_INLINE u32 caqm_tell(struct caqm_receiver *r, const struct caqm_params *params, u32 *fewer)
{
	u32 unit = caqm_bound(params->ack_hint_unit, 1, CAQM_MOST_HINT_UNIT);
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
