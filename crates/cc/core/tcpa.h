/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcpa: a rate-based congestion control for servers.
 *
 * It keeps a model of the path (the rate it delivers, its shortest round trip), sends at that rate, and
 * probes for more one round trip at a time. What sets it apart is how it reads loss: what is lost while it
 * sends less than the path delivers is the path's own (the floor); only what is lost beyond that while it
 * sends more is an answer to its sending.
 *
 * A round is a round trip counted by data. What a round's acknowledgements tell is about what was sent in
 * the round before, so each mode's effect is judged one round later (`judged`).
 */
#ifndef WEIR_CC_TCPA_H
#define WEIR_CC_TCPA_H

#include "contract.h"

struct tcpa_params {
	u32 init_cwnd; /* segments, paced over the first round trip */
	u32 loss_init_cwnd; /* segments after a retransmission timeout */
};

enum tcpa_mode {
	TCPA_STARTUP,
	TCPA_DRAIN,
	TCPA_CRUISE,
	TCPA_UP, /* one round above the rate, to see whether there is more */
	TCPA_DOWN, /* below it, until what UP left behind is gone */
	TCPA_REFRESH, /* half a pipe for one round: is the shortest round trip still true? */
};

struct tcpa {
	struct tcpa_params params;
	u64 pacing; /* bytes a second */
	u32 cwnd;
	u32 mss;
	u8 mode;
	u8 judged; /* the mode in which what is now acknowledged was sent */
	u8 full_rounds;
	u8 slow_rounds; /* in a row that delivered far less than the model says */
	u8 restarting;
	u8 judged_before;
	u8 round_mode;
	u32 rounds_in_mode;
	u32 random;

	/* the round under way */
	u64 round_end; /* `delivered` at which it is over */
	u64 round_began_us;
	u64 round_began_delivered;
	u64 round_rate; /* the best sample */
	u32 round_lost;
	u32 round_acked;
	u32 round_rtt; /* the shortest; 0: none */
	u32 round_inflight; /* the largest */
	u32 round_allowed; /* what could have been in flight */
	u16 round_bursts; /* acknowledgements that told of loss */
	u8 round_app_limited;
	u8 starved; /* what is now acknowledged was sent while something else than this kept it small */

	/* the path */
	u32 min_rtt; /* us */
	u64 min_rtt_at_us;
	u64 rate[2]; /* the best of this stretch of rounds and of the one before */
	u32 stretch_rounds;
	u64 debt; /* bytes lost beyond what the path loses by itself and a little more; never below zero */
	u8 verified; /* this stretch saw what the path loses by itself */
	u8 shared; /* rounds for which the bottleneck still counts as shared with others */
	u8 standing; /* the last round of CRUISE met a queue: somebody else's */
	u8 unused3[5];
	u64 floor_lost; /* bytes, while sending below the path's rate; both decay */
	u64 floor_sent;
	u64 trial_lost; /* the same of all that was not sent to probe */
	u64 trial_sent;
	u32 ceiling; /* bytes in flight that met loss of our making; 0: none known */
	u64 full_rate; /* in start-up and UP, the rate to be beaten */
	u32 probe_rounds; /* between two probes */
	u32 since_probe;
	u64 aggregated_since_us;
	u32 aggregated_acked;
	u32 aggregated[2]; /* acknowledged at once beyond the model, likewise in stretches */
};

#define TCPA_STRETCH 8U
#define TCPA_STARTUP_GAIN 2955U /* 2 / ln 2 */
#define TCPA_DRAIN_GAIN 512U
#define TCPA_CRUISE_GAIN 1014U
#define TCPA_UP_GAIN 1280U
#define TCPA_DOWN_GAIN 870U
#define TCPA_CWND_GAIN 2048U
#define TCPA_UP_CWND_GAIN 1536U
#define TCPA_UP_STANDING_CWND_GAIN 1792U
#define TCPA_PROBE_EVERY 6U
#define TCPA_PROBE_SELDOM 48U
#define TCPA_MIN_RTT_US 10000000U
#define TCPA_KEPT 717U
/* Whoever comes to a full queue sees neither it nor an end of the losses: a tenth is believed. */
#define TCPA_MOST_FLOOR 102U
#define TCPA_EXCESS 20U /* of 1024: 2 % */
#define TCPA_TOLERATED 16U /* of 1024, beyond the floor */
#define TCPA_CHANCE 2U
#define TCPA_TRIAL 2000U
#define TCPA_CHANCE_FLOOR 640U
#define TCPA_BACK_OFF 922U
#define TCPA_SHARED_ROUNDS 32U
#define TCPA_LEAST_SEGMENTS 4U
#define TCPA_SLACK_US 2000U

/* The best of what was delivered of late. */
CC_INLINE u64 tcpa_rate(const struct tcpa *t)
{
	return cc_max(t->rate[0], t->rate[1]);
}

/* The share that the path loses by itself, of 1024. */
CC_INLINE u32 tcpa_floor(const struct tcpa *t)
{
	return (u32)cc_min(cc_div(t->floor_lost * CC_ONE, t->floor_sent), TCPA_MOST_FLOOR);
}

CC_INLINE u64 tcpa_bdp(const struct tcpa *t)
{
	return cc_bytes_in(tcpa_rate(t), t->min_rtt);
}

/* One burst of segmentation offload at this pace: a millisecond's worth. */
CC_INLINE u32 tcpa_burst(const struct tcpa *t)
{
	u64 burst = t->pacing / 1000;

	return (u32)cc_min(cc_max(burst, 2ULL * t->mss), 65536);
}

CC_INLINE void tcpa_enter(struct tcpa *t, u8 mode)
{
	t->mode = mode;
	t->rounds_in_mode = 0;
}

CC_INLINE u32 tcpa_random(struct tcpa *t)
{
	t->random = t->random * 1664525U + 1013904223U;
	return t->random >> 16;
}

CC_INLINE void tcpa_begin_round(struct tcpa *t, const struct cc_ack *ack)
{
	t->starved = t->round_app_limited || t->round_inflight < t->round_allowed / 4 * 3;
	t->round_allowed = (u32)cc_min(t->cwnd, cc_bytes_in(t->pacing, t->min_rtt));
	t->round_bursts = 0;
	t->round_end = ack->delivered;
	t->round_began_us = ack->now_us;
	t->round_began_delivered = ack->delivered;
	t->round_rate = 0;
	t->round_lost = 0;
	t->round_acked = 0;
	t->round_rtt = 0;
	t->round_inflight = 0;
	t->round_app_limited = 0;
	t->judged_before = t->judged;
	t->judged = t->round_mode;
	t->round_mode = t->mode;
	t->rounds_in_mode++;
	t->since_probe++;
}

CC_INLINE void tcpa_pace(struct tcpa *t, u64 rate)
{
	t->pacing = cc_max(rate, 1000);
}

CC_INLINE void tcpa_init(struct tcpa *t, const struct tcpa_params *params, const struct cc_path *path)
{
	u64 rtt = path->handshake_rtt_us ? path->handshake_rtt_us : 1000;

	t->params = *params;
	t->mss = path->mss ? path->mss : 1;
	t->cwnd = (u32)cc_min(cc_max(params->init_cwnd, 1) * t->mss, 1U << 30);
	t->min_rtt = path->handshake_rtt_us;
	t->min_rtt_at_us = path->now_us;
	t->round_began_us = path->now_us;
	t->aggregated_since_us = path->now_us;
	t->random = path->seed;
	t->probe_rounds = TCPA_PROBE_EVERY;
	/* The first window leaves evenly within the first round trip. */
	tcpa_pace(t, cc_div((u64)t->cwnd * 1000000U, rtt));
}

/* Whether more was lost than the path loses by itself, by 2 % of what was sent and beyond what chance does:
 * k losses where m are expected have a deviation of the root of m times the size of a burst. */
CC_INLINE u8 tcpa_excess(const struct tcpa *t)
{
	u64 sent = cc_div((u64)t->round_lost + t->round_acked, t->mss);
	u64 lost = t->round_lost / t->mss;
	u64 expected = sent * tcpa_floor(t) / CC_ONE;
	u64 burst = cc_max(cc_div(lost, t->round_bursts), 1);
	u64 beyond = cc_less(lost, expected + 2);

	return beyond * CC_ONE > TCPA_EXCESS * sent && beyond * beyond > 4 * burst * expected;
}

CC_INLINE u8 tcpa_below_floor(const struct tcpa *t)
{
	u64 sent = (u64)t->round_lost + t->round_acked;

	return cc_div((u64)t->round_lost * CC_ONE, sent) < tcpa_floor(t);
}

/* Half of what was known gives way with every thousand segments. */
CC_INLINE void tcpa_learn_floor(struct tcpa *t)
{
	t->verified = 1;
	t->floor_lost += t->round_lost;
	t->floor_sent += (u64)t->round_lost + t->round_acked;
	if (t->floor_sent > 1024ULL * t->mss) {
		t->floor_lost /= 2;
		t->floor_sent /= 2;
	}
}

/* Loss of one's own making is not there all the time: once less than the floor was lost for a while, it was
 * too high. Belief goes up only where little is sent, and down at any time. */
CC_INLINE void tcpa_doubt_floor(struct tcpa *t)
{
	t->trial_lost += t->round_lost;
	t->trial_sent += (u64)t->round_lost + t->round_acked;
	if (t->trial_sent < (u64)TCPA_TRIAL * t->mss)
		return;
	if (t->trial_lost * CC_ONE / t->trial_sent < tcpa_floor(t)) {
		t->floor_lost = (t->floor_lost + cc_div(t->trial_lost * t->floor_sent, t->trial_sent)) / 2;
		t->floor_lost = cc_min(t->floor_lost, t->floor_sent);
	}
	t->trial_lost = 0;
	t->trial_sent = 0;
}

/* A round whose fastest packet met a queue. */
CC_INLINE u8 tcpa_queued(const struct tcpa *t)
{
	u32 slack = (u32)cc_max(t->min_rtt / 4, TCPA_SLACK_US);

	return t->round_rtt > t->min_rtt + slack;
}

/* A round whose fastest packet met next to none. */
CC_INLINE u8 tcpa_drained(const struct tcpa *t)
{
	return t->round_rtt && t->round_rtt <= t->min_rtt + t->min_rtt / 16 + 500;
}

/* Whether loss beyond the floor has added up to more than chance brings: a few segments, and more where the
 * path itself loses in bursts. Many small rounds tell as much as a large one. */
CC_INLINE u8 tcpa_owes(struct tcpa *t)
{
	u32 floor = tcpa_floor(t);
	u64 sent = (u64)t->round_lost + t->round_acked;
	u64 burst = cc_min(cc_max(cc_div(t->round_lost / t->mss, t->round_bursts), 1), 8);
	u64 chance = TCPA_CHANCE + TCPA_CHANCE_FLOOR * burst * floor / CC_ONE;

	t->debt = cc_less(t->debt + t->round_lost, cc_scale(sent, floor + TCPA_TOLERATED));
	/* Where no queue is seen it takes more: a burst of the path's own, or a policer. */
	return t->debt > chance * t->mss + (tcpa_drained(t) ? sent / 3 : 0);
}

/* What the round delivered, on average: bytes a second. */
CC_INLINE u64 tcpa_round_average(const struct tcpa *t, const struct cc_ack *ack)
{
	return cc_div((ack->delivered - t->round_began_delivered) * 1000000U,
		      ack->now_us - t->round_began_us);
}

/* Four segments in two of the shortest round trips: what no path is too slow for to try. */
CC_INLINE u64 tcpa_least_rate(const struct tcpa *t)
{
	return cc_div((u64)TCPA_LEAST_SEGMENTS * t->mss * 1000000U, 2ULL * cc_max(t->min_rtt, 1000));
}

/* The path became another: what was known of its rate is wrong. */
CC_INLINE void tcpa_forget_rate(struct tcpa *t, u64 rate)
{
	t->rate[0] = cc_max(rate, tcpa_least_rate(t));
	t->rate[1] = 0;
	t->stretch_rounds = 0;
}

/* Others share the bottleneck and it overflows: a little less than what comes through. */
CC_INLINE void tcpa_back_off(struct tcpa *t, u64 average)
{
	u64 rate = tcpa_rate(t);
	u64 kept = cc_scale(cc_min(average, rate), TCPA_BACK_OFF);

	tcpa_forget_rate(t, cc_max(kept, cc_scale(rate, TCPA_KEPT)));
	t->debt = 0;
	t->shared = TCPA_SHARED_ROUNDS;
}

/* The pipe's content by the model, times a gain, with room for the bursts both ends work in. */
CC_INLINE u32 tcpa_window(const struct tcpa *t, u32 gain)
{
	u64 bdp = cc_scale(tcpa_bdp(t), gain);
	u64 aggregated = cc_max(t->aggregated[0], t->aggregated[1]);
	u64 most = cc_bytes_in(tcpa_rate(t), 100000);
	u64 window = bdp + 3ULL * tcpa_burst(t) + cc_min(aggregated, most);

	return (u32)cc_min(cc_max(window, (u64)TCPA_LEAST_SEGMENTS * t->mss), 1U << 30);
}

/* It overflowed something: stay an eighth below what was in flight, and ask seldom. */
CC_INLINE void tcpa_meet_ceiling(struct tcpa *t)
{
	u32 kept = t->round_inflight - t->round_inflight / 8;

	t->ceiling = (u32)cc_max(kept, tcpa_bdp(t));
	t->probe_rounds = (u32)cc_min(2ULL * t->probe_rounds, TCPA_PROBE_SELDOM);
}

/* More was sent for a round; what came of it? */
CC_INLINE void tcpa_judge_probe(struct tcpa *t)
{
	u8 more = t->round_rate > t->full_rate + t->full_rate / 10;

	if (tcpa_excess(t)) {
		tcpa_meet_ceiling(t);
		if (t->mode == TCPA_UP)
			tcpa_enter(t, TCPA_DOWN);
		return;
	}
	if (t->ceiling && t->round_inflight > t->ceiling)
		t->ceiling = t->round_inflight;
	if (t->mode != TCPA_UP)
		return;
	if (more && !tcpa_queued(t)) {
		t->full_rate = t->round_rate;
		t->probe_rounds = TCPA_PROBE_EVERY;
		t->ceiling = 0;
		return;
	}
	if (t->starved && !tcpa_queued(t) && t->rounds_in_mode < 4)
		return;
	t->probe_rounds = (u32)cc_max(t->probe_rounds / 2, TCPA_PROBE_EVERY);
	tcpa_enter(t, TCPA_DOWN);
}

/* Start-up is over when three rounds brought less than a quarter more, when a queue says so sooner, or when
 * it overflows something. */
CC_INLINE void tcpa_judge_startup(struct tcpa *t)
{
	if (t->mode != TCPA_STARTUP || !t->round_rate)
		return;
	if (t->round_rate >= t->full_rate + t->full_rate / 4) {
		/* More is delivered, and there is no queue: what is lost is the path's. */
		if (tcpa_drained(t))
			tcpa_learn_floor(t);
		t->full_rate = t->round_rate;
		t->full_rounds = 0;
		return;
	}
	if (t->starved && !tcpa_queued(t))
		return;
	t->full_rounds++;
	if (tcpa_queued(t) || t->full_rounds >= 3) {
		if (tcpa_excess(t))
			tcpa_meet_ceiling(t);
		tcpa_enter(t, TCPA_DRAIN);
	}
}

CC_INLINE void tcpa_judge_round(struct tcpa *t, const struct cc_ack *ack)
{
	u64 average = tcpa_round_average(t, ack);
	u64 model = tcpa_rate(t);
	u8 queued = tcpa_queued(t);

	switch (t->judged) {
	case TCPA_STARTUP:
		tcpa_judge_startup(t);
		break;
	case TCPA_UP:
		tcpa_judge_probe(t);
		break;
	case TCPA_DOWN:
	case TCPA_REFRESH:
		/* What UP lost is told up to a quarter of a round late, and a queue may still overflow: then
		 * the floor is no higher than this. */
		if (t->judged_before == t->judged && (tcpa_drained(t) || (!t->shared && tcpa_below_floor(t))))
			tcpa_learn_floor(t);
		break;
	default:
		break;
	}
	if (t->judged == TCPA_CRUISE)
		t->standing = queued;
	if (t->shared && t->judged != TCPA_UP)
		tcpa_doubt_floor(t);
	/* What UP loses is told up to a quarter of a round late. */
	if ((t->judged == TCPA_CRUISE || t->judged_before == t->judged) && t->judged != TCPA_STARTUP &&
	    tcpa_owes(t))
		tcpa_back_off(t, average);
	else if (t->shared)
		t->shared--;
	/* What a single sample says is too much where others' packets are in between. */
	if (t->shared)
		t->rate[0] = cc_max(t->rate[0], average);
	/* The path became much slower: a queue, and far less than the model comes out of it. */
	if (t->judged != TCPA_STARTUP && queued && !t->starved && average < model / 2) {
		t->slow_rounds++;
		if (t->slow_rounds >= 2) {
			tcpa_forget_rate(t, cc_max(t->round_rate, average));
			t->slow_rounds = 0;
		}
	} else {
		t->slow_rounds = 0;
	}
	t->stretch_rounds++;
	if (t->stretch_rounds >= TCPA_STRETCH) {
		t->stretch_rounds = 0;
		/* What is not seen again fades. */
		if (!t->verified)
			t->floor_lost -= t->floor_lost / 16;
		t->verified = 0;
		t->rate[1] = t->rate[0];
		t->rate[0] = t->shared ? average : t->round_rate;
		t->aggregated[1] = t->aggregated[0];
		t->aggregated[0] = 0;
	}
}

CC_INLINE void tcpa_step(struct tcpa *t, const struct cc_ack *ack, u8 round)
{
	u64 bdp = tcpa_bdp(t);

	switch (t->mode) {
	case TCPA_DRAIN:
		if (ack->inflight <= bdp)
			tcpa_enter(t, TCPA_CRUISE);
		break;
	case TCPA_CRUISE:
		if (round && t->since_probe >= t->probe_rounds + (tcpa_random(t) & 1)) {
			t->since_probe = 0;
			t->full_rate = tcpa_rate(t);
			tcpa_enter(t, TCPA_UP);
		}
		break;
	case TCPA_DOWN:
		if (round && t->rounds_in_mode >= 2 &&
		    (ack->inflight <= bdp || t->rounds_in_mode >= 4))
			tcpa_enter(t, TCPA_CRUISE);
		break;
	case TCPA_REFRESH:
		if (round && t->rounds_in_mode >= 2)
			tcpa_enter(t, TCPA_CRUISE);
		break;
	default:
		break;
	}
}

/* The shortest round trip of ten seconds. When none as short was seen for that long, half a pipe for two
 * rounds shows it, without a stop. */
CC_INLINE void tcpa_watch_rtt(struct tcpa *t, const struct cc_ack *ack)
{
	u8 old = ack->now_us - t->min_rtt_at_us > TCPA_MIN_RTT_US;

	if (!ack->rtt_us)
		return;
	if (!t->min_rtt || ack->rtt_us <= t->min_rtt || (old && t->mode == TCPA_REFRESH)) {
		t->min_rtt = ack->rtt_us;
		t->min_rtt_at_us = ack->now_us;
	} else if (old && t->mode == TCPA_CRUISE && !t->restarting) {
		tcpa_enter(t, TCPA_REFRESH);
	}
}

CC_INLINE void tcpa_sample(struct tcpa *t, const struct cc_ack *ack)
{
	u64 bytes = cc_less(ack->delivered, ack->prior_delivered);
	u64 rate = cc_div(bytes * 1000000U, ack->interval_us);

	if (!ack->interval_us || ack->interval_us < t->min_rtt / 2)
		return;
	if (ack->app_limited && rate <= tcpa_rate(t))
		return;
	t->round_rate = cc_max(t->round_rate, rate);
	if (!t->shared)
		t->rate[0] = cc_max(t->rate[0], rate);
}

CC_INLINE void tcpa_watch_aggregation(struct tcpa *t, const struct cc_ack *ack)
{
	u64 expected = cc_bytes_in(tcpa_rate(t), ack->now_us - t->aggregated_since_us);

	if (t->aggregated_acked <= expected || t->aggregated_acked > (1U << 28)) {
		t->aggregated_acked = 0;
		t->aggregated_since_us = ack->now_us;
		expected = 0;
	}
	t->aggregated_acked += ack->acked;
	t->aggregated[0] = (u32)cc_max(t->aggregated[0],
				       cc_min(cc_less(t->aggregated_acked, expected), t->cwnd));
}

CC_INLINE void tcpa_set_pace(struct tcpa *t)
{
	u64 rate = tcpa_rate(t);

	/* What the path loses by itself has to be sent as well, but not where the floor is measured: a floor
	 * that was of our own making must come down again. */
	if (t->mode != TCPA_DOWN && t->mode != TCPA_REFRESH)
		rate += cc_scale(rate, tcpa_floor(t));

	switch (t->mode) {
	case TCPA_STARTUP:
		rate = cc_max(cc_scale(rate, TCPA_STARTUP_GAIN), t->pacing);
		break;
	case TCPA_DRAIN:
	case TCPA_REFRESH:
		rate = cc_scale(rate, TCPA_DRAIN_GAIN);
		break;
	case TCPA_UP:
		/* Among others a step up is small, and larger in proportion for whoever has less. */
		if (t->shared)
			rate += rate / 16 + cc_div(1000000ULL * t->mss, t->min_rtt);
		else
			rate = cc_scale(rate, TCPA_UP_GAIN);
		break;
	case TCPA_DOWN:
		rate = cc_scale(rate, TCPA_DOWN_GAIN);
		break;
	default:
		/* A hair below, so that what an estimate is too high by does not pile up. */
		rate = cc_scale(rate, TCPA_CRUISE_GAIN);
		break;
	}
	if (rate)
		tcpa_pace(t, cc_max(rate, tcpa_least_rate(t)));
}

CC_INLINE void tcpa_set_window(struct tcpa *t, const struct cc_ack *ack)
{
	u32 target;

	switch (t->mode) {
	case TCPA_STARTUP:
		/* Never less than was allowed: what is acknowledged makes room for as much again. */
		target = (u32)cc_max(tcpa_window(t, TCPA_STARTUP_GAIN), t->cwnd);
		if (t->cwnd < tcpa_window(t, TCPA_STARTUP_GAIN))
			t->cwnd = (u32)cc_min((u64)t->cwnd + ack->acked, target);
		return;
	case TCPA_REFRESH:
		t->cwnd = (u32)cc_min(t->cwnd, tcpa_window(t, TCPA_DRAIN_GAIN));
		return;
	case TCPA_UP:
		/* In others' queue the smaller window would make of the probe a retreat. */
		target = tcpa_window(t, t->standing ? TCPA_UP_STANDING_CWND_GAIN
						    : TCPA_UP_CWND_GAIN);
		break;
	default:
		target = tcpa_window(t, TCPA_CWND_GAIN);
		break;
	}
	/* Below a ceiling that was met, except to ask whether it still stands. */
	if (t->ceiling && t->mode != TCPA_UP)
		target = (u32)cc_min(target, cc_max(t->ceiling, 4ULL * t->mss));
	t->cwnd = (u32)cc_min((u64)t->cwnd + ack->acked, target);
	t->cwnd = (u32)cc_max(t->cwnd, (u64)TCPA_LEAST_SEGMENTS * t->mss);
}

CC_INLINE void tcpa_on_ack(struct tcpa *t, const struct cc_ack *ack)
{
	u8 round = ack->prior_delivered >= t->round_end;

	tcpa_sample(t, ack);
	t->round_lost += ack->lost;
	if (ack->lost)
		t->round_bursts++;
	t->round_acked += ack->acked;
	t->round_app_limited |= ack->app_limited;
	t->round_inflight = (u32)cc_max(t->round_inflight, (u64)ack->inflight + ack->acked);
	if (ack->rtt_us && (!t->round_rtt || ack->rtt_us < t->round_rtt))
		t->round_rtt = ack->rtt_us;
	tcpa_watch_rtt(t, ack);
	tcpa_watch_aggregation(t, ack);
	if (round)
		tcpa_judge_round(t, ack);
	tcpa_step(t, ack, round);
	if (round)
		tcpa_begin_round(t, ack);
	tcpa_set_pace(t);
	tcpa_set_window(t, ack);
	if (ack->acked)
		t->restarting = 0;
}

/* The retransmission timer expired: everything in flight is lost. The model stays; what is sent again
 * starts small. */
CC_INLINE void tcpa_on_timeout(struct tcpa *t)
{
	t->cwnd = (u32)cc_max((u64)t->params.loss_init_cwnd * t->mss, t->mss);
	t->full_rounds = 0;
}

/* Something is sent again after silence: at the model's rate, and rounds begin anew. */
CC_INLINE void tcpa_on_idle(struct tcpa *t, u64 now_us)
{
	t->restarting = 1;
	t->aggregated_acked = 0;
	t->aggregated_since_us = now_us;
	t->round_app_limited = 1;
}

CC_INLINE void tcpa_decide(const struct tcpa *t, struct cc_out *out)
{
	out->cwnd = t->cwnd;
	out->pacing_rate = t->pacing;
	out->unused = 0;
}

#endif
