/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PERT's state of one connection, and what each event does to it, without a socket or a clock.
 *
 * Compiled for BPF and, by the tests, for the host. It follows
 * crates/mechanisms/src/congestion/pert/mod.rs event by event.
 */
#ifndef PERT_FLOW_H
#define PERT_FLOW_H

#include "pert_competition.h"

/* From this window on, in packets, the next packet comes before the receiver's timer for an ACK ends. */
#define PERT_LONE_PACKET_WINDOW 8ull

struct pert_flow {
	u64 cwnd;		/* packets */
	u64 ssthresh;		/* packets */
	u64 alpha;		/* packets per round trip */
	u64 srtt;		/* delay; PERT's own smoothed round-trip time */
	u64 next_step;		/* us; when alpha may take its next step */
	u32 min_rtt;		/* us; 0 before the first sample */
	u32 max_rtt;		/* us */
	u32 last_rtt;		/* us; the last sample that may tell of a new largest one */
	u32 mode;		/* in force */
	u32 observed_mode;	/* of the last ACK */
	u64 observed;		/* whole packets on end that were acknowledged in it */
	struct pert_competition competition;
	struct pert_intervals losses;
	struct pert_intervals responses;
	u64 early_responses;
	u64 loss_episodes;	/* timeouts and congestion marks counted in */
};

/* What is known when an ACK arrives. */
struct pert_ack {
	u64 now;		/* us */
	u64 clock;		/* us; the wall clock's time */
	u32 packets;		/* newly acknowledged */
	u32 rtt;		/* us; 0 where there is no sample */
	u32 draw;		/* uniform over 32 bits */
	u8 in_recovery;
	u8 felt;		/* a packet sent after the last response is acknowledged */
	u8 may_grow;		/* the window is what limits the sender */
};

static inline void pert_start(struct pert_flow *flow, const struct pert_parameters *p,
			      u64 cwnd, u64 ssthresh)
{
	flow->cwnd = cwnd;
	flow->ssthresh = ssthresh;
	flow->alpha = p->alpha_initial;
	flow->mode = PERT_SAFE;
	flow->observed_mode = PERT_SAFE;
}

static inline struct pert_queueing pert_queueing_of(const struct pert_flow *flow,
						    const struct pert_parameters *p)
{
	u64 least = (u64)flow->min_rtt << DELAY_BITS;
	struct pert_queueing q = {
		.current = flow->srtt > least ? flow->srtt - least : 0,
		.maximum = pert_max((u64)(flow->max_rtt - flow->min_rtt) << DELAY_BITS,
				    p->maxq_floor),
	};
	return q;
}

/* How many ACKs of one packet an ACK stands for. */
static inline u32 pert_counted(const struct pert_parameters *p, u32 packets)
{
	return p->per_packet ? pert_min(packets, 0xffff) : 1;
}

/*
 * The ACK's round trip, 0 where none counts. The largest is kept for ever, so that with `confirmed` two on
 * end must tell of it.
 */
static inline u32 pert_sample(struct pert_flow *flow, const struct pert_parameters *p,
			      const struct pert_ack *ack)
{
	u32 rtt = pert_min(ack->rtt, PERT_MAX_RTT_US);
	u32 largest = flow->max_rtt;

	if (p->confirmed && ack->in_recovery)
		return 0;
	if (!p->confirmed || !rtt || !flow->min_rtt)
		return rtt;
	/* In a small window a lone packet can have waited for the receiver's timer. */
	if (ack->packets > 1 || flow->cwnd >= PERT_LONE_PACKET_WINDOW << PACKET_BITS) {
		largest = pert_max(largest, flow->last_rtt);
		flow->last_rtt = rtt;
	}
	return pert_min(rtt, largest);
}

/* Returns the round trip that counted. */
static inline u32 pert_measure(struct pert_flow *flow, const struct pert_parameters *p,
			       const struct pert_ack *ack)
{
	u32 rtt = pert_sample(flow, p, ack);
	u64 sample = (u64)rtt << DELAY_BITS;

	if (rtt && !flow->min_rtt) {
		flow->min_rtt = rtt;
		flow->max_rtt = rtt;
		flow->last_rtt = rtt;
		flow->srtt = sample;
	} else if (rtt) {
		u32 times = pert_counted(p, ack->packets);

		flow->min_rtt = pert_min(flow->min_rtt, rtt);
		flow->max_rtt = pert_max(flow->max_rtt, rtt);
		flow->srtt = pert_smoothed(flow->srtt, sample,
					   pert_power(p->srtt_weight, times));
	}
	pert_intervals_on_packets(&flow->losses, ack->packets);
	pert_intervals_on_packets(&flow->responses, ack->packets);
	return rtt;
}

/* Finds the mode in force and lets alpha follow. */
static inline void pert_adapt(struct pert_flow *flow, const struct pert_parameters *p,
			      const struct pert_ack *ack, struct pert_queueing q)
{
	u64 ratio = pert_early_to_loss(&flow->losses, &flow->responses);
	u32 mode = pert_mode_of(p, q);

	if (mode != flow->observed_mode) {
		flow->observed_mode = mode;
		flow->observed = 0;
	}
	flow->observed += ack->packets;
	flow->mode = p->immediate || flow->observed << PACKET_BITS >= flow->cwnd ? mode : PERT_SAFE;

	if (p->immediate) {
		u64 alpha = pert_immediate_alpha(p, mode, q, ratio);

		if (alpha) {
			flow->alpha = alpha;
			return;
		}
	}
	if (ack->now >= flow->next_step) {
		flow->alpha = pert_stepped_alpha(p, flow->alpha, flow->mode, q, ratio);
		flow->next_step = ack->now + pert_period(flow->srtt, p->alpha_period);
	}
}

/* Becomes Reno where early responses do not shorten the queue, and tries them again later. */
static inline void pert_be_reno_or_not(struct pert_flow *flow, const struct pert_parameters *p,
				       const struct pert_ack *ack, u32 rtt,
				       struct pert_queueing q)
{
	int has_lost = flow->losses.known > 0;
	int full;

	if (!p->as_reno || !rtt)
		return;
	/* In slow start there are no responses that could be futile. */
	full = (flow->competition.as_reno || flow->cwnd >= flow->ssthresh) &&
	       (u64)(rtt - flow->min_rtt) << DELAY_BITS >= pert_full_from(p, q, has_lost);
	switch (pert_compete(&flow->competition, ack->now, ack->clock, flow->srtt, flow->cwnd,
			     full, has_lost, ack->may_grow)) {
	case PERT_TO_RENO:
		flow->ssthresh = pert_max(flow->competition.window, flow->cwnd);
		break;
	case PERT_TO_EARLY:
		flow->alpha = p->alpha_minimum;
		break;
	}
}

static inline u64 pert_reduced(const struct pert_flow *flow, const struct pert_parameters *p,
			       u64 decrease)
{
	return pert_max(flow->cwnd - pert_share_of(flow->cwnd, decrease), p->window_floor);
}

/*
 * Whether a packet sent after the last response is acknowledged, for an ACK up to sequence number `una`;
 * called for each. `until` is the first number not yet sent at that response. Once passed it follows: left
 * 2^31 behind, it would count as still to come. Without a branch, from which the kernel's verifier would
 * follow all that comes after it twice.
 */
static inline int pert_feels(u32 *until, u32 una)
{
	u32 felt = (*until - una) >> 31;

	__asm__ volatile("" : "+r"(felt));
	*until ^= (*until ^ (una - 1)) & -felt;
	return felt;
}

/* Draws for an early response; true where the window was reduced. */
static inline int pert_responds_early(struct pert_flow *flow, const struct pert_parameters *p,
				      const struct pert_ack *ack, struct pert_queueing q)
{
	u64 quiet = SHARE_ONE - pert_response_probability(p, q);
	u64 probability = SHARE_ONE - pert_power(quiet, pert_counted(p, ack->packets));

	if (!ack->felt || ack->draw >> (32 - SHARE_BITS) >= probability)
		return 0;
	flow->ssthresh = pert_reduced(flow, p, pert_decrease(q));
	flow->cwnd = flow->ssthresh;
	pert_intervals_close(&flow->responses);
	flow->early_responses++;
	return 1;
}

/* An ACK; true where it was answered by an early response. */
static inline int pert_on_ack(struct pert_flow *flow, const struct pert_parameters *p,
			      const struct pert_ack *ack)
{
	struct pert_queueing q;
	u32 rtt = pert_measure(flow, p, ack);

	if (ack->in_recovery || !ack->packets)
		return 0;
	q = pert_queueing_of(flow, p);
	if (flow->min_rtt) {
		pert_adapt(flow, p, ack, q);
		pert_be_reno_or_not(flow, p, ack, rtt, q);
	}
	if (flow->cwnd < flow->ssthresh) {
		if (ack->may_grow)
			flow->cwnd += (u64)pert_counted(p, ack->packets) << PACKET_BITS;
	} else {
		u64 alpha = flow->competition.as_reno ? PACKET_ONE : flow->alpha;

		if (flow->min_rtt && !flow->competition.as_reno &&
		    pert_responds_early(flow, p, ack, q))
			return 1;
		if (ack->may_grow) {
			u64 packets = pert_min(ack->packets, 0xffff);

			flow->cwnd += (((alpha * packets) << PACKET_BITS) + flow->cwnd / 2) /
				      flow->cwnd;
		}
	}
	flow->cwnd = pert_min(flow->cwnd, PERT_MAX_WINDOW << PACKET_BITS);
	return 0;
}

/* A loss, by whatever sign: the threshold falls, the loss interval is closed. */
static inline void pert_on_loss(struct pert_flow *flow, const struct pert_parameters *p)
{
	/* As Reno, and before any round trip was measured. */
	u64 decrease = SHARE_ONE / 2;

	if (flow->min_rtt && !flow->competition.as_reno)
		decrease = pert_decrease(pert_queueing_of(flow, p));
	flow->ssthresh = pert_reduced(flow, p, decrease);
	pert_intervals_close(&flow->losses);
	flow->loss_episodes++;
}

#endif
