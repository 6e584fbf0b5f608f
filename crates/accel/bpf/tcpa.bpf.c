// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tcpa's core as a congestion control of the kernel. Converts the kernel's packet counts into
 * bytes, and writes the core's decisions into the socket.
 */
#include "kernel.h"
#include "maps.h"
#include "memory.h"
#include "work.h"

/* TCP_RTO_MIN of include/net/tcp.h, the shortest timeout. A flow that has sent nothing for this
 * time has lost its ACK clock. */
#define IDLE_US 200000U
/* tcp_update_skb_after_send() of net/ipv4/tcp_output.c sends this many segments at once, at any
 * pacing rate. */
#define UNPACED_SEGMENTS 10U
/* Below this rate, in bytes per second, a second segment of a train would keep a link of that rate
 * busy for 10 ms: 1.2 Mbit/s. */
#define SINGLE_BELOW 150000U
/* tcp_tso_autosize() of net/ipv4/tcp_output.c: a train holds the data of a millisecond (the usual
 * sk_pacing_shift), at most 64 KiB. */
#define TRAIN_SHIFT 10
#define TRAIN_BYTES 65535U

/* Copy the core's decision to the fields that the kernel's sender reads. */
static __always_inline void apply(struct sock *sk, const struct flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct cc_out out;
	u64 rate, packets;

	tcpa_decide(&flow->tcpa, &out);
	packets = cc_max(cc_div(out.cwnd, tp->mss_cache), cc_max(flow->min_window, 1));
	tp->snd_cwnd = cc_min(packets, tp->snd_cwnd_clamp);
	rate = cc_min(out.pacing_rate, sk->sk_max_pacing_rate);
	sk->sk_pacing_rate = rate;
}

/* Paces the first window over a round trip, without the packets that the kernel sends unpaced. At
 * the core's pace the first window would end long before the first ACK, and its packets would
 * arrive as a burst. */
static __always_inline void spread_first_window(struct sock *sk, u32 segments)
{
	u32 unpaced = cc_min(UNPACED_SEGMENTS, segments / 2);

	sk->sk_pacing_rate -= cc_div((u64)sk->sk_pacing_rate * unpaced, segments);
}

static __always_inline void start(struct sock *sk, struct flow *flow)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 rule = flow->rule;
	struct tunables *tunables = bpf_map_lookup_elem(&settings, &rule);
	struct tcpa_params params = {};
	struct cc_path path = {};

	path.now_us = tp->tcp_mstamp;
	path.mss = tp->mss_cache;
	path.handshake_rtt_us = tp->srtt_us >> 3;
	path.seed = bpf_get_prandom_u32();
	params.init_cwnd = tp->snd_cwnd;
	/* After a timeout the window is one segment, as in the kernel, unless the rule asks for more. */
	params.loss_init_cwnd = 1;
	if (tunables) {
		/* An established connection continues from its current window. */
		if (!tp->data_segs_out) {
			params.init_cwnd = tunables->init_cwnd;
			recall(sk, tunables->memory_age_s, &path.memory);
		}
		params.loss_init_cwnd = tunables->loss_init_cwnd;
		params.no_pauses = tunables->no_pauses;
		flow->min_window = tunables->min_window;
		flow->file_threshold = tunables->file_threshold;
	}
	__builtin_memset(&flow->done, 0, sizeof(flow->done));
	work_of_kernel(tp, &flow->began);
	flow->done.recalled = path.memory.rate != 0;
	__builtin_memset(&flow->tcpa, 0, sizeof(flow->tcpa));
	tcpa_init(&flow->tcpa, &params, &path);
	flow->delivered_packets = tp->delivered;
	flow->delivered = (u64)tp->delivered * tp->mss_cache;
	flow->lost_packets = tp->lost;
	flow->heard_us = tp->tcp_mstamp;
	flow->in_recovery = 0;
	flow->running = 1;
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
	apply(sk, flow);
	if (!tp->data_segs_out && flow->tcpa.resuming == TCPA_AFRESH)
		spread_first_window(sk, params.init_cwnd);
}

/* Returns the flow of a socket. NULL only if memory is short: the connection then continues with
 * its current window. */
static __always_inline struct flow *flow_of(struct sock *sk)
{
	return bpf_sk_storage_get(&flows, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

static __always_inline void acknowledge(struct sock *sk, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);
	struct cc_ack ack = {};
	u32 mss = tp->mss_cache;
	bool pausing;

	if (!flow)
		return;
	if (!flow->running) {
		start(sk, flow);
		return;
	}
	/* rs->losses would omit packets that timers mark as lost. */
	ack.lost = (u32)(tp->lost - flow->lost_packets) * mss;
	flow->lost_packets = tp->lost;
	if (!rs->acked_sacked && !ack.lost)
		return;
	flow->delivered += (u64)(u32)(tp->delivered - flow->delivered_packets) * mss;
	flow->delivered_packets = tp->delivered;
	flow->heard_us = tp->tcp_mstamp;
	ack.now_us = tp->tcp_mstamp;
	ack.delivered = flow->delivered;
	if (rs->prior_mstamp)
		ack.prior_delivered = cc_less(
			flow->delivered, (u64)(u32)(tp->delivered - rs->prior_delivered) * mss);
	if (rs->rtt_us > 0)
		ack.rtt_us = rs->rtt_us;
	if (rs->interval_us > 0 && rs->prior_mstamp)
		ack.interval_us = rs->interval_us;
	ack.acked = rs->acked_sacked * mss;
	ack.inflight = packets_in_flight(tp) * mss;
	/* tcp_rate_check_app_limited() reports the whole first flight, and the first flight after
	 * every idle period, as application-limited: nothing was in flight when the application
	 * began to write. */
	ack.app_limited = rs->is_app_limited && unsent(tp) < mss;
	ack.in_recovery = flow->in_recovery;
	pausing = flow->tcpa.mode == TCPA_PAUSE;
	tcpa_on_ack(&flow->tcpa, &ack);
	flow->done.pauses += !pausing && flow->tcpa.mode == TCPA_PAUSE;
	apply(sk, flow);
}

SEC("struct_ops")
void BPF_PROG(tcpa_start, struct sock *sk)
{
	struct flow *flow = flow_of(sk);

	if (flow)
		start(sk, flow);
}

SEC("struct_ops")
void BPF_PROG(tcpa_release, struct sock *sk)
{
	struct flow *flow = bpf_sk_storage_get(&flows, sk, NULL, 0);

	if (flow && flow->running) {
		if (flow->delivered >= flow->file_threshold)
			flow->done.remembered = remember(sk, flow);
		work_ended(tcp_sk(sk), flow);
	}
	bpf_sk_storage_delete(&flows, sk);
}

/* The form for Linux 6.10 and later. */
SEC("struct_ops")
void BPF_PROG(tcpa_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	acknowledge(sk, rs);
}

SEC("struct_ops")
void BPF_PROG(tcpa_cong_control_before_6_10, struct sock *sk, const struct rate_sample *rs)
{
	acknowledge(sk, rs);
}

SEC("struct_ops")
void BPF_PROG(tcpa_set_state, struct sock *sk, u8 state)
{
	struct flow *flow = flow_of(sk);

	if (!flow || !flow->running)
		return;
	flow->done.recoveries += state == TCP_CA_Recovery && !flow->in_recovery;
	flow->in_recovery = state == TCP_CA_Recovery;
	if (state == TCP_CA_Loss) {
		flow->done.timeouts++;
		tcpa_on_timeout(&flow->tcpa);
		apply(sk, flow);
	}
}

/* Handles a packet that the connection sends with nothing in flight. */
static __always_inline void begin_to_send(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct flow *flow = flow_of(sk);

	if (!flow || !flow->running)
		return;
	/* The kernel reports every packet sent with nothing in flight. The connection was idle only if its
	 * last ACK is older than a timeout. */
	if (tp->tcp_mstamp - flow->heard_us < cc_max(IDLE_US, tp->srtt_us >> 2))
		return;
	tcpa_on_idle(&flow->tcpa, tp->tcp_mstamp);
	flow->done.restarts++;
	apply(sk, flow);
}

SEC("struct_ops")
void BPF_PROG(tcpa_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		begin_to_send(sk);
}

/* Linux 7.1 and later. */
SEC("struct_ops")
void BPF_PROG(tcpa_cwnd_event_tx_start, struct sock *sk)
{
	begin_to_send(sk);
}

/* Returns the threshold, which the kernel requires for its recovery accounting; cong_control
 * decides the window. */
SEC("struct_ops")
u32 BPF_PROG(tcpa_ssthresh, struct sock *sk)
{
	return TCP_INFINITE_SSTHRESH;
}

SEC("struct_ops")
u32 BPF_PROG(tcpa_undo_cwnd, struct sock *sk)
{
	return tcp_sk(sk)->snd_cwnd;
}

/* Returns the number of windows that the send buffer should hold: the buffer keeps data
 * that is retransmitted several times. */
SEC("struct_ops")
u32 BPF_PROG(tcpa_sndbuf_expand, struct sock *sk)
{
	return 3;
}

static __always_inline u32 least_train(const struct sock *sk)
{
	return sk->sk_pacing_rate < SINGLE_BELOW ? 1 : 2;
}

/* Returns the minimum number of segments sent together. */
SEC("struct_ops")
u32 BPF_PROG(tcpa_min_tso_segs, struct sock *sk)
{
	return least_train(sk);
}

/* Returns the number of segments of a whole train, for kernels with Google's patches for BBRv3. */
SEC("struct_ops")
u32 BPF_PROG(tcpa_tso_segs, struct sock *sk, u32 mss)
{
	u64 bytes = cc_min(sk->sk_pacing_rate >> TRAIN_SHIFT, TRAIN_BYTES);

	return cc_max(cc_div(bytes, mss), least_train(sk));
}

#define OPS(control, ...)                                                                          \
	{                                                                                          \
		.init = (void *)tcpa_start, .release = (void *)tcpa_release,                       \
		.cong_control = (void *)control, .set_state = (void *)tcpa_set_state,              \
		.ssthresh = (void *)tcpa_ssthresh, .undo_cwnd = (void *)tcpa_undo_cwnd,            \
		.sndbuf_expand = (void *)tcpa_sndbuf_expand, .flags = TCP_CONG_NON_RESTRICTED,     \
		.name = "tcpa", __VA_ARGS__                                                        \
	}

#define LEAST_TRAIN .min_tso_segs = (void *)tcpa_min_tso_segs
#define WHOLE_TRAIN .tso_segs = (void *)tcpa_tso_segs
#define EVENT .cwnd_event = (void *)tcpa_cwnd_event
#define TX_START .cwnd_event_tx_start = (void *)tcpa_cwnd_event_tx_start

/* The loader loads the form that fits the kernel. The forms differ in four points: the arguments of
 * cong_control; a link (6.4), or an implementation that stays until it is removed from its map; the
 * callback that sizes a train; and the callback that reports the first packet after an idle period
 * (7.1). No kernel has the four arguments without links: that form is for tests, and leaves out the
 * callbacks that differ. */
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops = OPS(tcpa_cong_control, LEAST_TRAIN, EVENT);
SEC("?.struct_ops")
struct tcp_congestion_ops ops_unlinked = OPS(tcpa_cong_control);
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops_before_6_10 =
	OPS(tcpa_cong_control_before_6_10, LEAST_TRAIN, EVENT);
SEC("?.struct_ops")
struct tcp_congestion_ops ops_before_6_4 = OPS(tcpa_cong_control_before_6_10, LEAST_TRAIN, EVENT);
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops_since_7_1 = OPS(tcpa_cong_control, LEAST_TRAIN, TX_START);
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops_whole_trains = OPS(tcpa_cong_control, WHOLE_TRAIN, EVENT);
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops_whole_trains_since_7_1 =
	OPS(tcpa_cong_control, WHOLE_TRAIN, TX_START);

char _license[] SEC("license") = "Dual BSD/GPL";
