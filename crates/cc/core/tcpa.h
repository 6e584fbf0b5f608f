/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tcpa: a congestion control for servers
 *
 * A window bounds the bytes in the network, pacing only spreads them over the round trip. Once a
 * round (a round trip counted by data) the window moves:
 *
 *   rate    = best delivery-rate sample of the last 8 to 16 rounds
 *   min_rtt = shortest RTT; pauses confirm or replace it
 *   queue   = shortest RTT of the round - base_rtt
 *   target  = sqrt(40 ms * time of one packet at this flow's rate)
 *
 *   alone, or among other tcpa flows (tcpa_hold.h):
 *       window += window * (target - queue) / (2 * RTT)
 *   beside a rival (tcpa_contend.h):
 *       window -> CUBIC's window
 *   loss adds up beyond the path's own (tcpa_loss.h):
 *       window -= window * max(share lost, 1/8 alone or 3/10 beside a rival)
 *
 *   cwnd   = window + 2 segments
 *   pacing = 1.25 * window / RTT
 *
 * A flow with a larger share has a smaller target. The queue exceeds this flow's target first, so
 * this flow reduces first: shares become equal without a message between the flows.
 *
 * By delay alone, a flow cannot distinguish its own queue from another flow's, or random loss from
 * an overflow. Therefore all tcpa flows of a host send less for a round trip at the same instants
 * (tcpa_pause.h), and measure the path without their own queue:
 *
 *   the queue left too      -> the RTT is base_rtt and the loss the path's own; no rival
 *   a queue stands, twice   -> a rival keeps it: contend
 *
 * When the path becomes several times slower the window follows within two round trips
 * (tcpa_slump.h), and again when the rate returns (tcpa_return.h). A later connection to the same
 * destination begins at the remembered rate and confirms it (tcpa_resume.h).
 *
 * Modes:
 *
 *              first window, or a part of a remembered rate
 *                                |
 *                                v
 *        +------------------- STARTUP <-------------------------+
 *        |                       |                              |
 *        | a queue stands,       | as much is in flight as the  | no queue: the rate returns, or
 *        | three rounds without  | path carried before it fell  | a small window loses packets
 *        | growth, or two that   | (only after a fall)          | (after 8, 16, 32, ... s)
 *        | lose a fifth          |                              |
 *        v                       +--------------------------+   |
 *      DRAIN -- in flight <= rate * min_rtt, or 4 rounds -> STEADY
 *                                                           |   ^
 *                                      every 1.05 to 16.8 s v   |  1.25 round trips
 *                                                           PAUSE
 *
 *   mode     pacing rate           costs                        fails when
 *   STARTUP  2.885 * rate          up to rate * min_rtt of      the application limits the rate:
 *                                  queue for a round            such rounds are left out
 *   DRAIN    0.625 * rate          1 to 4 rounds below the      a rival keeps the queue: after 4
 *                                  path's rate                  rounds a pause decides
 *   STEADY   1.25 * window / RTT
 *     hold                         the target queue             the share is a few segments: rounds
 *                                                               tell too little
 *     contend                      a queue as long as CUBIC's   the rival answers no loss: the flow
 *                                                               is deaf to 3 % of loss then
 *   PAUSE    1/2 of the rate, 3/4  a quarter or half of a       flows of another host pause at
 *            once min_rtt is sure  round trip's data            other instants: they look like
 *                                                               rivals
 *
 * Words:
 *
 *   rival  a flow that keeps a queue while all tcpa flows pause, and tcpa flows of other hosts. The
 *          field counts the pauses without a queue that remain until the rival counts as gone.
 *   pause  the round trip in which all tcpa flows of a host send less
 *   haste  rounds in a row in which no packet met a queue: each quadruples the growth
 *   brake  the RTT at which haste ends within a round
 *   floor  the share of packets that the path loses however little is sent
 *   debt   bytes lost beyond the floor that the flow has not answered yet
 *   room   the largest queue that stood for a round, in us: the buffer holds at least as much
 *   depth  the queue at the last overflow, in us
 *   echo   a round whose losses were sent before the last answer to loss
 *   deaf   rivals do not answer loss, or leave less than a third: the flow answers less, too
 *
 * docs/internals/tcpa.md explains each part with its pseudocode, and lists the constants with the
 * number of cells of labs/cc-grid.toml that a change of each shows in.
 */
#ifndef WEIR_CC_TCPA_H
#define WEIR_CC_TCPA_H

#include "tcpa_hold.h"
#include "tcpa_pause.h"
#include "tcpa_slump.h"
#include "tcpa_startup.h"

CC_INLINE void tcpa_judge_steady(struct tcpa *t, const struct cc_ack *ack)
{
	/* Without an RTT sample, all acknowledged packets were sent in an earlier round. Reduce
	 * the window only for heavy loss, which is not chance. */
	if (!t->round_rtt) {
		if (t->echoes) {
			t->echoes--;
		} else if (tcpa_round_share(t) > TCPA_HEAVY_LOSS && t->round_lost > 2ULL * t->mss) {
			t->window -= (u32)cc_scale(t->window, tcpa_cut(t, 0));
			t->window = tcpa_bound_window(t, t->window);
			t->echoes = TCPA_ECHO_ROUNDS;
			t->debt = 0;
		}
		return;
	}
	if (t->hold_until)
		return;
	if (t->slumped) {
		tcpa_judge_slump(t);
		return;
	}
	if (t->returning) {
		t->returning = 0;
		return;
	}
	t->calm = cc_count(t->calm, 255);
	t->most = cc_max(t->most, t->average);
	/* Average the spread over eight rounds. */
	t->spread += (u32)(cc_min(cc_less(t->round_rtt_max, t->round_rtt), t->round_rtt / 2) / 8);
	t->spread -= t->spread / 8;
	if (t->rival)
		tcpa_contend(t, ack);
	else
		tcpa_hold_queue(t, ack);
	t->window = tcpa_bound_window(t, t->window);
}

CC_INLINE void tcpa_settle(struct tcpa *t)
{
	u64 rate = t->starved ? tcpa_rate(t) : cc_min(t->average, tcpa_rate(t));

	/* Rounds in which the receiver waited for one segment underestimate the rate: use the best
	 * known rate. */
	if (t->resuming)
		rate = cc_max(rate, cc_min(t->remembered, tcpa_rate(t)));
	t->window = tcpa_bound_window(t, cc_bytes_in(rate, t->min_rtt));
	t->held = t->window;
	t->base_rtt = t->min_rtt;
	t->rtt = t->min_rtt;
	t->mode = TCPA_STEADY;
	tcpa_end_resume(t);
	t->seeking = 0;
	t->capacity = t->full_rate;
	t->known = t->starved ? 0 : rate;
}

CC_INLINE void tcpa_init(struct tcpa *t, const struct tcpa_params *params,
			 const struct cc_path *path)
{
	u64 rtt = path->handshake_rtt_us ? path->handshake_rtt_us : 1000;

	t->params = *params;
	t->mss = (u32)cc_min(cc_max(path->mss, 1), 65536);
	t->cwnd = (u32)cc_min(cc_max(params->init_cwnd, 1) * t->mss, TCPA_MOST_WINDOW);
	t->min_rtt = path->handshake_rtt_us;
	t->min_rtt_at_us = path->now_us;
	t->round_began_us = path->now_us;
	t->patience = TCPA_PATIENCE;
	tcpa_recall(t, path);
	/* Spread the first window evenly over the first round trip. With a memory, a train leaves
	 * at the remembered rate. */
	tcpa_pace(t, cc_max(cc_rate(t->cwnd, rtt), t->remembered));
}

CC_INLINE void tcpa_judge_round(struct tcpa *t, const struct cc_ack *ack)
{
	u64 rtt;

	if (t->round_bursts)
		t->burst = (u32)((3ULL * t->burst + t->round_lost / t->round_bursts) / 4);
	t->average = cc_rate(ack->delivered - t->round_began_delivered,
			     ack->now_us - t->round_began_us);
	if (t->judged != TCPA_STARTUP && tcpa_settled(t))
		t->capacity = cc_max(t->capacity, t->average);
	else if (t->judged != TCPA_STARTUP)
		t->full_rate = cc_max(t->full_rate, t->average);
	/* In start-up and DRAIN the queue changes within a round: average the shortest RTT with the
	 * mean RTT. */
	rtt = t->round_rtt;
	if (t->judged == TCPA_STARTUP || t->judged == TCPA_DRAIN)
		rtt = (rtt + cc_div(t->round_rtt_sum, t->round_rtts)) / 2;
	if (tcpa_told(t))
		t->room = (u32)cc_max(t->room, cc_less(rtt, t->min_rtt));
	switch (t->judged) {
	case TCPA_STARTUP:
		tcpa_judge_startup(t, ack);
		break;
	case TCPA_STEADY:
		if (t->mode == TCPA_STEADY && !t->looking) {
			tcpa_judge_steady(t, ack);
			tcpa_learn_rate(t);
		}
		break;
	case TCPA_PAUSE:
		if (t->looking)
			tcpa_judge_pause(t, ack);
		break;
	default:
		break;
	}
	if (t->mode == TCPA_DRAIN)
		t->full_rounds++;
	t->stretch_rounds++;
	if (t->stretch_rounds >= TCPA_STRETCH) {
		t->stretch_rounds = 0;
		t->rate[1] = t->rate[0];
		t->rate[0] = t->round_rate;
	}
}

CC_INLINE void tcpa_watch_rtt(struct tcpa *t, const struct cc_ack *ack)
{
	if (!ack->rtt_us)
		return;
	t->round_rtt_sum += ack->rtt_us;
	t->round_rtts++;
	t->round_rtt_max = (u32)cc_max(t->round_rtt_max, ack->rtt_us);
	if (!t->round_rtt || ack->rtt_us < t->round_rtt)
		t->round_rtt = ack->rtt_us;
	if (!t->min_rtt || ack->rtt_us <= t->min_rtt) {
		/* A queue stood while the flow measured the floor: discard the floor. */
		if (ack->rtt_us + tcpa_noise(t->min_rtt) < t->min_rtt) {
			t->floor_lost = 0;
			t->sure = 0;
			t->found_shorter = 1;
		}
		t->min_rtt = ack->rtt_us;
		t->min_rtt_at_us = ack->now_us;
	}
	if (ack->rtt_us < t->base_rtt)
		t->base_rtt = ack->rtt_us;
}

CC_INLINE void tcpa_sample(struct tcpa *t, const struct cc_ack *ack)
{
	u64 rate = cc_rate(cc_less(ack->delivered, ack->prior_delivered), ack->interval_us);

	if (!ack->interval_us || ack->interval_us < t->min_rtt / 2)
		return;
	if (ack->app_limited && rate <= tcpa_rate(t))
		return;
	t->round_rate = cc_max(t->round_rate, rate);
	t->rate[0] = cc_max(t->rate[0], rate);
}

CC_INLINE void tcpa_set_pace(struct tcpa *t)
{
	u64 rate = tcpa_rate(t);

	switch (t->mode) {
	case TCPA_STARTUP:
		if (t->resuming)
			return;
		/* Add the path's own loss, because the flow has to send lost bytes as well. */
		rate += cc_scale(rate, tcpa_floor(t));
		rate = cc_max(cc_scale(rate, TCPA_STARTUP_GAIN), t->pacing);
		if (t->seeking)
			rate = cc_min(rate, t->most + t->most / 4);
		break;
	case TCPA_DRAIN:
		rate = cc_scale(rate, TCPA_DRAIN_GAIN);
		break;
	case TCPA_PAUSE:
		/* Send much less to find a shorter round trip or a rival's queue, but only a little
		 * less to confirm min_rtt. */
		rate = cc_min(t->average, tcpa_per_rtt(t, t->window));
		rate -= t->sure && !t->standing ? rate / 4 : rate / 2;
		break;
	default:
		/* Pace at a quarter more than the window needs: the window limits the bytes in the
		 * network, and the pace only spreads them. */
		rate = tcpa_per_rtt(t, t->window);
		rate += rate / 4;
		break;
	}
	if (rate)
		tcpa_pace(t, rate);
}

CC_INLINE void tcpa_set_window(struct tcpa *t, const struct cc_ack *ack)
{
	u64 target, step;

	switch (t->mode) {
	case TCPA_STARTUP:
		if (t->resuming)
			return;
		/* The RTT shows a growing queue: keep the window until the end of the round. */
		if (ack->rtt_us > t->min_rtt + cc_max(t->min_rtt / 4, TCPA_BRAKE_US))
			return;
		/* Never reduce the window; each ACK adds as much as it acknowledges. */
		target = cc_scale(tcpa_bdp(t), TCPA_STARTUP_GAIN);
		step = ack->acked;
		if (t->seeking) {
			target = cc_min(target, tcpa_most_bdp(t) + 2ULL * t->mss);
			step *= 2;
		}
		if (t->cwnd < target)
			t->cwnd = tcpa_clamp_window(cc_min(t->cwnd + step, target), t->mss);
		return;
	case TCPA_DRAIN:
		t->cwnd = tcpa_clamp_window(cc_min(t->cwnd, 2 * tcpa_bdp(t)), tcpa_least_flight(t));
		return;
	case TCPA_PAUSE:
		/* A deep queue holds most of the window: keep half, because the rival takes the rest. */
		target = cc_bytes_in(t->pacing, tcpa_round_time(t));
		/* With fewer packets the round would not be usable. */
		if (!tcpa_small(t))
			target = cc_max(target, tcpa_least_flight(t));
		t->cwnd = tcpa_clamp_window(cc_min(t->cwnd, target), t->mss);
		return;
	default:
		/* The RTT shows a growing queue: keep the window, as in start-up. */
		if (t->haste > 1 && ack->rtt_us > t->brake)
			return;
		/* Add two segments for delayed ACKs, but none to a small window. */
		target = t->window + (tcpa_small(t) ? 0 : 2ULL * t->mss);
		t->cwnd = tcpa_bound_window(t, cc_min((u64)t->cwnd + ack->acked, target));
		return;
	}
}

CC_INLINE void tcpa_on_ack(struct tcpa *t, const struct cc_ack *ack)
{
	u8 round = ack->prior_delivered >= t->round_end;

	tcpa_sample(t, ack);
	if (ack->now_us != t->acked_us)
		t->lumps = cc_count(t->lumps, 255);
	t->round_lost += ack->lost;
	if (ack->lost)
		t->round_bursts++;
	t->round_acked += ack->acked;
	t->round_app_limited |= ack->app_limited;
	t->round_inflight = (u32)cc_max(t->round_inflight, (u64)ack->inflight + ack->acked);
	tcpa_watch_rtt(t, ack);
	tcpa_watch_slump(t, ack);
	tcpa_watch_return(t, ack);
	if (round)
		tcpa_judge_round(t, ack);
	if (t->mode == TCPA_STARTUP && !t->resuming)
		tcpa_watch_start(t, ack);
	if (t->mode == TCPA_DRAIN &&
	    (ack->inflight <= tcpa_bdp(t) || t->full_rounds >= TCPA_DRAIN_ROUNDS)) {
		t->standing = t->full_rounds >= TCPA_DRAIN_ROUNDS;
		tcpa_settle(t);
	}
	if (round)
		tcpa_begin_round(t, ack);
	else if (t->resuming)
		tcpa_watch_resumed(t, ack);
	tcpa_schedule(t, ack, round);
	tcpa_set_pace(t);
	tcpa_set_window(t, ack);
	if (ack->acked)
		t->restarting = 0;
}

/* Handle an expired retransmission timer: all bytes in flight are lost. Keep the model, and start
 * the retransmission with a small window. */
CC_INLINE void tcpa_on_timeout(struct tcpa *t)
{
	t->cwnd = tcpa_clamp_window((u64)t->params.loss_init_cwnd * t->mss, t->mss);
	t->full_rounds = 0;
	if (t->mode == TCPA_PAUSE)
		t->mode = TCPA_STEADY;
	/* The remembered rate led to the timeout: discard it. */
	tcpa_end_resume(t);
}

/* Send again after an idle period, at the model's rate, and begin a new round. */
CC_INLINE void tcpa_on_idle(struct tcpa *t, u64 now_us)
{
	t->restarting = 1;
	t->start.at_us = now_us;
	t->slump.at_us = now_us;
	t->round_app_limited = 1;
}

CC_INLINE void tcpa_decide(const struct tcpa *t, struct cc_out *out)
{
	out->cwnd = t->cwnd;
	out->pacing_rate = t->pacing;
	out->unused = 0;
}

#endif
