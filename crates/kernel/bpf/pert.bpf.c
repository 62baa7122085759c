// SPDX-License-Identifier: GPL-2.0
/*
 * PERT as a TCP congestion control of Linux: the joints between the kernel's socket and
 * pert_flow.h, which holds the mechanism.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "pert_flow.h"

char _license[] SEC("license") = "GPL";

/* Written before the program is loaded, constant from then on. */
const volatile struct pert_parameters given SEC(".rodata.parameters");

/* ns that TAI, the only wall clock of a BPF program, is ahead of UTC here: 0 on a host that knows no leap seconds. */
const volatile u64 leap_ns SEC(".rodata.clock");

/* What one socket's PERT remembers. */
struct pert_socket {
	struct pert_flow flow;
	u64 undo_cwnd;		/* the window before the last loss, as packets */
	u32 written_cwnd;	/* what was last written to the socket, in whole packets, */
	u32 written_ssthresh;	/* so that what the kernel writes itself is noticed */
	u32 delivered;		/* packets delivered by the last ACK */
	u32 rtt_sample;		/* us; of the ACK at hand, 0 where there is none */
	u32 responded_until;	/* of pert_feels: the first sequence number not yet sent at the last response */
	u32 timeouts;
	u8 ca_state;		/* TCP_CA_* */
	u8 loss_pending;	/* a loss was told of, and its window is not in force yet */
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct pert_socket);
} sockets SEC(".maps");

static inline struct tcp_sock *tcp_sk(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

/* To the compiler they are constant zeros, which it must not believe. */
static inline const struct pert_parameters *parameters(void)
{
	const struct pert_parameters *p = (const struct pert_parameters *)&given;

	asm volatile("" : "+r"(p));
	return p;
}

/* Takes over what the kernel itself wrote: after a timeout, an idle period, an undone loss. */
static void adopt(struct pert_socket *pert, const struct tcp_sock *tp)
{
	if (tp->snd_cwnd != pert->written_cwnd) {
		pert->flow.cwnd = pert_min(pert_max(tp->snd_cwnd, 1), PERT_MAX_WINDOW)
				  << PACKET_BITS;
		pert->written_cwnd = tp->snd_cwnd;
	}
	if (tp->snd_ssthresh != pert->written_ssthresh) {
		pert->flow.ssthresh = pert_min(tp->snd_ssthresh, PERT_MAX_WINDOW) << PACKET_BITS;
		pert->written_ssthresh = tp->snd_ssthresh;
	}
}

/* The socket's state, made where it is new; null where memory is short. */
static struct pert_socket *state_of(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct pert_socket *pert;

	pert = bpf_sk_storage_get(&sockets, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (pert && !pert->flow.alpha) {
		pert_start(&pert->flow, parameters(), PACKET_ONE, PACKET_ONE);
		pert->delivered = tp->delivered;
		pert->responded_until = tp->snd_una - 1;
		adopt(pert, tp);
	}
	return pert;
}

static inline u32 in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

/*
 * Whether the window is what limits the sender. A paced sender seldom fills its window to the
 * last packet, which is all that is_cwnd_limited tells; so does one that has data to send and
 * uses more than half of it.
 */
static inline int may_grow(const struct pert_flow *flow, const struct tcp_sock *tp)
{
	int in_slow_start = flow->cwnd < flow->ssthresh;

	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return (in_slow_start || !tp->app_limited) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/* Bytes per second: the window over the round-trip time, twice that in slow start. */
static void pace(struct sock *sk, const struct pert_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u64 gain = parameters()->pacing_gain;
	u32 srtt = tp->srtt_us >> 3;
	u64 rate;

	if (!gain || !srtt)
		return;
	if (flow->cwnd < flow->ssthresh)
		gain *= 2;
	/* 2^55 at most; 2^43 after the shift, times a million still below 2^64. */
	rate = (flow->cwnd * pert_min(tp->mss_cache, 0xffff)) >> 12;
	rate = (rate * 1000000 / srtt) >> (PACKET_BITS - 12);
	if (rate < 1ull << 40)
		rate = rate * gain >> PACKET_BITS;
	sk->sk_pacing_rate = pert_min(rate, sk->sk_max_pacing_rate);
}

SEC("struct_ops")
void BPF_PROG(pert_init, struct sock *sk)
{
	/*
	 * The kernel has asked for the answer to the SYN already. Its round trip is no sample: a SYN is
	 * small, and a full packet's own time on a slow link would count as queueing delay ever after.
	 */
	bpf_sk_storage_delete(&sockets, sk);
	state_of(sk);
	/* Without the queueing discipline fq, TCP itself keeps the rate. */
	if (parameters()->pacing_gain && sk->sk_pacing_status == SK_PACING_NONE)
		sk->sk_pacing_status = SK_PACING_NEEDED;
}

SEC("struct_ops")
void BPF_PROG(pert_release, struct sock *sk)
{
	bpf_sk_storage_delete(&sockets, sk);
}

SEC("struct_ops")
void BPF_PROG(pert_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct pert_socket *pert = state_of(sk);

	if (!pert)
		return;
	pert->rtt_sample = sample->rtt_us > 0 ? sample->rtt_us : 0;
	/*
	 * An ACK that ends a recovery covers packets, too, that had arrived before it and that no SACK had
	 * told of: their samples are a round trip too long.
	 */
	if (parameters()->confirmed && pert->ca_state >= TCP_CA_RECOVERY)
		pert->rtt_sample = 0;
}

/* A loss episode begins: by duplicate ACKs, a timeout or a congestion mark. */
SEC("struct_ops")
u32 BPF_PROG(pert_ssthresh, struct sock *sk)
{
	struct pert_socket *pert = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!pert)
		return pert_max(tp->snd_cwnd / 2, 2);
	adopt(pert, tp);
	pert->undo_cwnd = pert->flow.cwnd;
	pert_on_loss(&pert->flow, parameters());
	pert->loss_pending = 1;
	pert->written_ssthresh = pert->flow.ssthresh >> PACKET_BITS;
	return pert->written_ssthresh;
}

SEC("struct_ops")
void BPF_PROG(pert_set_state, struct sock *sk, u8 new_state)
{
	struct pert_socket *pert = state_of(sk);

	if (!pert)
		return;
	pert->ca_state = new_state;
	if (new_state == TCP_CA_LOSS) {
		/* The kernel has set the window, as after any timeout. */
		pert->loss_pending = 0;
		pert->timeouts++;
		adopt(pert, tcp_sk(sk));
	}
}

/* The loss was none. */
SEC("struct_ops")
u32 BPF_PROG(pert_undo_cwnd, struct sock *sk)
{
	struct pert_socket *pert = state_of(sk);
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	return pert ? pert_max(cwnd, pert->undo_cwnd >> PACKET_BITS) : cwnd;
}

/* Once an ACK, after the kernel has settled what was acknowledged and what is lost. */
SEC("struct_ops")
void BPF_PROG(pert_cong_control, struct sock *sk)
{
	struct pert_socket *pert = state_of(sk);
	struct tcp_sock *tp = tcp_sk(sk);
	struct pert_ack ack = {};
	u32 cwnd;

	if (!pert)
		return;
	adopt(pert, tp);
	ack.now = tp->tcp_mstamp;
	ack.clock = (bpf_ktime_get_tai_ns() - leap_ns) / 1000;
	ack.packets = tp->delivered - pert->delivered;
	ack.rtt = pert->rtt_sample;
	ack.draw = bpf_get_prandom_u32();
	ack.in_recovery = pert->ca_state == TCP_CA_RECOVERY || pert->ca_state == TCP_CA_CWR;
	ack.felt = pert_feels(&pert->responded_until, tp->snd_una);
	ack.may_grow = may_grow(&pert->flow, tp);
	pert->delivered = tp->delivered;
	pert->rtt_sample = 0;

	if (pert_on_ack(&pert->flow, parameters(), &ack))
		pert->responded_until = tp->snd_nxt;
	if (ack.in_recovery && pert->loss_pending)
		pert->flow.cwnd = pert->flow.ssthresh;
	cwnd = pert_max(pert->flow.cwnd >> PACKET_BITS, 1);
	/* The first retransmission leaves at once (RFC 6675, section 5, step 4.3). */
	if (ack.in_recovery && pert->loss_pending)
		cwnd = pert_max(cwnd, in_flight(tp) + 1);
	pert->loss_pending = 0;

	pert->written_cwnd = pert_min(cwnd, tp->snd_cwnd_clamp);
	tp->snd_cwnd = pert->written_cwnd;
	/* Before the first reduction the kernel's own "none" stays. */
	if (pert->flow.ssthresh < PERT_MAX_WINDOW << PACKET_BITS)
		tp->snd_ssthresh = pert->flow.ssthresh >> PACKET_BITS;
	pert->written_ssthresh = tp->snd_ssthresh;
	pace(sk, &pert->flow);
}

SEC(".struct_ops.link")
struct tcp_congestion_ops congestion_control = {
	.name = "pert",
	.flags = TCP_CONG_NON_RESTRICTED,
	.init = (void *)pert_init,
	.release = (void *)pert_release,
	.ssthresh = (void *)pert_ssthresh,
	.set_state = (void *)pert_set_state,
	.pkts_acked = (void *)pert_pkts_acked,
	.cong_control = (void *)pert_cong_control,
	.undo_cwnd = (void *)pert_undo_cwnd,
};

static void print_ends(struct seq_file *seq, const struct sock *sk)
{
	const struct sock_common *common = &sk->__sk_common;
	u32 netns = common->skc_net.net->ns.inum;
	u16 from = common->skc_num, to = __builtin_bswap16(common->skc_dport);

	if (common->skc_family == AF_INET6) {
		struct in6_addr local = common->skc_v6_rcv_saddr, remote = common->skc_v6_daddr;

		BPF_SEQ_PRINTF(seq, "socket netns=%u local=[%pI6]:%u remote=[%pI6]:%u", netns,
			       &local, from, &remote, to);
	} else {
		__be32 local = common->skc_rcv_saddr, remote = common->skc_daddr;

		BPF_SEQ_PRINTF(seq, "socket netns=%u local=%pI4:%u remote=%pI4:%u", netns, &local,
			       from, &remote, to);
	}
}

static void print_parameters(struct seq_file *seq)
{
	const struct pert_parameters *p = parameters();

	BPF_SEQ_PRINTF(seq, "parameters %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu",
		       p->srtt_weight, p->maxq_floor, p->t_min, p->t_max, p->p_max, p->t3_share,
		       p->alpha_initial, p->alpha_minimum, p->alpha_maximum, p->high_speed_step);
	BPF_SEQ_PRINTF(seq, " %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu\n",
		       p->safe_factor, p->compete_step, p->compete_from, p->compete_full, p->ramp_pole,
		       p->alpha_period, p->immediate, p->as_reno, p->window_floor,
		       p->per_packet, p->confirmed, p->pacing_gain);
}

/* A line a socket, then one with the parameters: what a reader of the pinned file sees. */
SEC("iter/bpf_sk_storage_map")
int print_sockets(struct bpf_iter__bpf_sk_storage_map *context)
{
	struct seq_file *seq = context->meta->seq;
	struct pert_socket *pert = context->value;
	struct sock *sk = context->sk;
	struct pert_queueing q;
	struct pert_flow *flow;

	if (!sk || !pert) {
		print_parameters(seq);
		return 0;
	}
	flow = &pert->flow;
	q = pert_queueing_of(flow, parameters());
	print_ends(seq, sk);
	BPF_SEQ_PRINTF(seq, " mode=%u reno=%u alpha=%llu curq=%llu maxq=%llu cwnd=%llu ssthresh=%u",
		       flow->mode, flow->competition.as_reno, flow->alpha, q.current, q.maximum, flow->cwnd,
		       pert->written_ssthresh);
	BPF_SEQ_PRINTF(seq, " srtt=%llu min_rtt=%u p=%llu p'=%llu early=%llu losses=%llu",
		       flow->srtt, flow->min_rtt, pert_intervals_mean(&flow->losses),
		       pert_intervals_mean(&flow->responses), flow->early_responses,
		       flow->loss_episodes);
	BPF_SEQ_PRINTF(seq, " timeouts=%u pacing=%llu delivered=%u\n", pert->timeouts,
		       sk->sk_pacing_rate, pert->delivered);
	return 0;
}
