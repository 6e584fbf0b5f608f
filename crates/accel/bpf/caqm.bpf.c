// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * CAQM's sender as a congestion control of the kernel. caqm_tags.bpf.c stores the ports' answers in
 * the connection's record; this program turns the answers into a window. A connection has no record
 * if its peer did not offer CAQM or no port on its path supports CAQM; the connection then uses
 * Reno.
 */
#include "caqm_kernel.h"
#include "caqm_maps.h"

#define SOL_TCP 6
#define TCP_CONGESTION 13

/* ACKs in a row without a tag after which the sender assumes that the peer or a middlebox removes
 * tags. Before the first tag fewer ACKs are enough, because no tag has shown that tags pass. */
#define SILENCE_BEFORE_FIRST 16U
#define SILENCE 256U
/* TCP_RTO_MIN of include/net/tcp.h */
#define IDLE_US 200000U
/* TCP_INIT_CWND of include/net/tcp.h */
#define FIRST_WINDOW 10U

static __always_inline struct caqm_record *record_of(struct sock *sk)
{
	return bpf_sk_storage_get(&records, sk, NULL, 0);
}

/* Switch the connection to Reno, without tags. */
static __always_inline void give_up(struct sock *sk)
{
	struct caqm_totals *count = totals_here();
	char reno[] = "reno";

	if (!bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1) && count)
		count->gave_up++;
}

SEC("struct_ops")
void BPF_PROG(caqm_start, struct sock *sk)
{
	const struct caqm_settings *settings = network_settings();
	struct caqm_record *record = record_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct caqm_params params;
	char reno[] = "reno";
	u32 cwnd, rtt;
	u64 now;

	if (!record || !settings) {
		bpf_setsockopt(sk, SOL_TCP, TCP_CONGESTION, reno, sizeof(reno) - 1);
		return;
	}
	params = settings->params;
	cwnd = tp->snd_cwnd;
	rtt = tp->srtt_us >> 3;
	now = tp->tcp_mstamp;
	bpf_spin_lock(&record->lock);
	caqm_init(&record->sender, &params, cwnd, rtt, now);
	record->more = 0;
	record->fewer = 0;
	record->nothing = 0;
	record->silent = 0;
	record->acked_us = now;
	record->state = 0;
	record->running = 1;
	record->sending = 1;
	bpf_spin_unlock(&record->lock);
	tp->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

SEC("struct_ops")
void BPF_PROG(caqm_release, struct sock *sk)
{
	struct caqm_record *record = record_of(sk);

	/* Keep the record: this end answers the peer's requests with any algorithm. */
	if (record)
		record->sending = 0;
}

/* Whether the window limits the sender, as the kernel computes it (tcp_is_cwnd_limited() of
 * include/net/tcp.h). */
static __always_inline bool is_limited(struct tcp_sock *tp, bool start)
{
	struct tcp_sock___limited *more = (void *)tp;

	if (BPF_CORE_READ_BITFIELD_PROBED(more, is_cwnd_limited))
		return true;
	return start && tp->snd_cwnd < 2 * BPF_CORE_READ(more, max_packets_out);
}

/* Pace at 1.2 windows a round trip, or at two while the window doubles, as the kernel does for
 * other algorithms (tcp_update_pacing_rate() of net/ipv4/tcp_input.c). */
static __always_inline void pace(struct sock *sk, u32 cwnd, bool start)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 rate = (u64)cc_max(cwnd, tp->packets_out) * tp->mss_cache * 1000000U;

	rate = cc_div(rate, cc_max(tp->srtt_us >> 3, 1));
	rate = rate / 10 * (start ? 20 : 12);
	sk->sk_pacing_rate = cc_min(rate, sk->sk_max_pacing_rate);
}

static __always_inline void acknowledge(struct sock *sk, const struct rate_sample *rs)
{
	struct caqm_record *record = record_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u64 now = tp->tcp_mstamp;
	u32 rtt = 0, more, fewer, cwnd, bytes;
	bool limited, start, plain;

	if (!record || !record->running)
		return;
	if (rs->rtt_us > 0)
		rtt = rs->rtt_us;
	limited = is_limited(tp, record->sender.start);
	bpf_spin_lock(&record->lock);
	caqm_measured(&record->sender, rtt, now);
	/* An answer holds up to 255 units, and several answers may have arrived since the last
	 * call. The next call processes the rest, so that the time under the lock has a bound. */
	for (u32 answers = 0; answers < 4; answers++) {
		more = cc_min(record->more, CAQM_HINT);
		fewer = cc_min(record->fewer, CAQM_HINT);
		bytes = record->sender.params.ack_hint_unit;
		if (more) {
			caqm_answer(&record->sender, more, 0, limited, now);
			record->more -= more;
			record->granted += (u64)more * bytes;
		}
		if (fewer) {
			caqm_answer(&record->sender, 0, fewer, limited, now);
			record->fewer -= fewer;
			record->refused += (u64)fewer * bytes;
		}
		if (!more && !fewer)
			break;
	}
	if (record->nothing) {
		caqm_answer(&record->sender, 0, 0, limited, now);
		record->nothing = 0;
	}
	if (record->heard != record->heard_before)
		record->silent = 0;
	else if (rs->acked_sacked)
		record->silent++;
	record->heard_before = record->heard;
	record->acked_us = now;
	plain = record->silent >= (record->heard ? SILENCE : SILENCE_BEFORE_FIRST);
	cwnd = record->sender.cwnd;
	start = record->sender.start;
	bpf_spin_unlock(&record->lock);
	tp->snd_cwnd = cc_min(cwnd, tp->snd_cwnd_clamp);
	pace(sk, cwnd, start);
	if (plain) {
		/* Set Reno's threshold: Reno continues from this window, and goes on doubling the
		 * window if CAQM was doubling the window. */
		if (record->state >= TCP_CA_Recovery)
			tp->snd_ssthresh = cc_max(cwnd / 2, 2);
		else if (!start)
			tp->snd_ssthresh = cc_max(cwnd, 2);
		give_up(sk);
	}
}

/* Linux 6.10 and later. */
SEC("struct_ops")
void BPF_PROG(caqm_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	acknowledge(sk, rs);
}

SEC("struct_ops")
void BPF_PROG(caqm_cong_control_before_6_10, struct sock *sk, const struct rate_sample *rs)
{
	acknowledge(sk, rs);
}

SEC("struct_ops")
void BPF_PROG(caqm_set_state, struct sock *sk, u8 state)
{
	struct caqm_record *record = record_of(sk);
	u64 now = tcp_sk(sk)->tcp_mstamp;
	bool plain = false;

	if (!record || !record->running)
		return;
	bpf_spin_lock(&record->lock);
	if (state == TCP_CA_Loss) {
		/* A timeout suggests that the path drops tagged packets. */
		plain = !record->heard ||
			(record->state == TCP_CA_Loss && record->heard == record->heard_in_time);
		record->heard_in_time = record->heard;
		if (record->state != TCP_CA_Loss)
			caqm_on_timeout(&record->sender, now);
	} else if (state == TCP_CA_Recovery && record->state < TCP_CA_Recovery) {
		plain = caqm_on_loss(&record->sender, now);
	}
	record->state = state;
	bpf_spin_unlock(&record->lock);
	if (plain)
		give_up(sk);
}

/* Handles a packet that the connection sends with nothing in flight. */
static __always_inline void begin_to_send(struct sock *sk)
{
	struct caqm_record *record = record_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	u64 now = tp->tcp_mstamp;

	if (!record || !record->running)
		return;
	/* The kernel reports every packet sent with nothing in flight. The connection was idle only if its
	 * last ACK is older than a timeout. */
	if (now - record->acked_us < cc_max(IDLE_US, tp->srtt_us >> 2))
		return;
	bpf_spin_lock(&record->lock);
	caqm_on_idle(&record->sender, FIRST_WINDOW);
	record->acked_us = now;
	bpf_spin_unlock(&record->lock);
	tp->snd_cwnd = cc_min(tp->snd_cwnd, FIRST_WINDOW);
}

SEC("struct_ops")
void BPF_PROG(caqm_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_TX_START)
		begin_to_send(sk);
}

/* Linux 7.1 and later. */
SEC("struct_ops")
void BPF_PROG(caqm_cwnd_event_tx_start, struct sock *sk)
{
	begin_to_send(sk);
}

/* Reno's threshold after a recovery, in case Reno takes over. The answers decide CAQM's window. */
SEC("struct_ops")
u32 BPF_PROG(caqm_ssthresh, struct sock *sk)
{
	return cc_max(tcp_sk(sk)->snd_cwnd / 2, 2);
}

SEC("struct_ops")
u32 BPF_PROG(caqm_undo_cwnd, struct sock *sk)
{
	struct caqm_record *record = record_of(sk);
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	if (!record || !record->running)
		return cwnd;
	bpf_spin_lock(&record->lock);
	caqm_on_undo(&record->sender);
	cwnd = record->sender.cwnd;
	bpf_spin_unlock(&record->lock);
	return cwnd;
}

#define OPS(control, ...)                                                                          \
	{                                                                                          \
		.init = (void *)caqm_start, .release = (void *)caqm_release,                       \
		.cong_control = (void *)control, .set_state = (void *)caqm_set_state,              \
		.ssthresh = (void *)caqm_ssthresh, .undo_cwnd = (void *)caqm_undo_cwnd,            \
		.flags = TCP_CONG_NON_RESTRICTED, .name = CAQM, __VA_ARGS__                        \
	}

#define EVENT .cwnd_event = (void *)caqm_cwnd_event
#define TX_START .cwnd_event_tx_start = (void *)caqm_cwnd_event_tx_start

/* The loader loads the form that fits the kernel: the arguments of cong_control, and the callback
 * that reports the first packet after an idle period. */
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops = OPS(caqm_cong_control, EVENT);
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops_before_6_10 = OPS(caqm_cong_control_before_6_10, EVENT);
SEC("?.struct_ops.link")
struct tcp_congestion_ops ops_since_7_1 = OPS(caqm_cong_control, TX_START);

char _license[] SEC("license") = "Dual BSD/GPL";
