/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PERT's arithmetic in fixed point: functions of delays, windows and intervals, without state.
 *
 * Compiled for BPF and, by the tests, for the host. The law and the source of each number are in
 * crates/mechanisms/src/congestion/pert/law.rs, which this follows function by function.
 *
 *   share    24 fractional bits: probabilities, weights, shares of a delay; 0 to 1
 *   packets  20 fractional bits: windows, alpha, means of intervals; below 2^19 packets
 *   delay    12 fractional bits of a microsecond; below 2^27 us (134 s)
 *
 * These widths let a share times a window, or times a delay, fit into 64 bits. Every quotient and
 * product is rounded to the nearest. BPF has no signed division before its fourth version.
 */
#ifndef PERT_MATH_H
#define PERT_MATH_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SHARE_BITS 24
#define SHARE_ONE (1ull << SHARE_BITS)
#define PACKET_BITS 20
#define PACKET_ONE (1ull << PACKET_BITS)
#define DELAY_BITS 12
#define PERT_MAX_WINDOW ((1ull << 19) - 1)
#define PERT_MAX_RTT_US ((1u << 27) - 1)
/* Packets of one interval; with it the quotient of two means fits into 64 bits. */
#define PERT_MAX_INTERVAL ((1u << 23) - 1)
/* p'/p where no loss was ever seen. */
#define PERT_NO_LOSS (~0ull)

/* What may be set at load. The loader writes these numbers in this order. */
struct pert_parameters {
	u64 srtt_weight;	/* share */
	u64 maxq_floor;		/* delay */
	u64 t_min;		/* delay */
	u64 t_max;		/* delay */
	u64 p_max;		/* share */
	u64 t3_share;		/* share */
	u64 alpha_initial;	/* packets per round trip */
	u64 alpha_minimum;	/* packets per round trip */
	u64 alpha_maximum;	/* packets per round trip */
	u64 high_speed_step;	/* packets per round trip */
	u64 safe_factor;	/* share */
	u64 compete_step;	/* packets per round trip */
	u64 compete_from;	/* share */
	u64 compete_full;	/* share */
	u64 ramp_pole;		/* share, above 0 */
	u64 alpha_period;	/* smoothed round trips, as packets */
	u64 immediate;		/* 0 or 1 */
	u64 as_reno;		/* 1: Reno while responses do not shorten the queue; 0: alpha alone */
	u64 window_floor;	/* packets */
	u64 per_packet;		/* 1: an ACK of n packets counts as n ACKs; 0: as one */
	u64 confirmed;		/* 1: a round trip counts where the queue can have made it; 0: each */
	u64 pacing_gain;	/* of window / round trip, as packets; 0: no pacing */
};

struct pert_queueing {
	u64 current;		/* delay: smoothed less smallest round-trip time */
	u64 maximum;		/* delay: largest less smallest, at least maxq_floor */
};

enum pert_mode { PERT_HIGH_SPEED, PERT_SAFE, PERT_COMPETE };

/* The lengths of the last eight intervals between events, and the open one (RFC 5348, 5.4). */
#define PERT_INTERVALS 8
struct pert_intervals {
	u32 closed[PERT_INTERVALS];	/* in packets, the newest first */
	u32 known;
	u32 open;
};

static inline u64 pert_min(u64 a, u64 b)
{
	return a < b ? a : b;
}

static inline u64 pert_max(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* Of a window or a delay, both below 2^39. */
static inline u64 pert_share_of(u64 whole, u64 share)
{
	return (whole * share + SHARE_ONE / 2) >> SHARE_BITS;
}

/* part / whole as a share, at most 1; both below 2^40. */
static inline u64 pert_ratio(u64 part, u64 whole)
{
	return part >= whole ? SHARE_ONE : ((part << SHARE_BITS) + whole / 2) / whole;
}

/* A share to the power of n, by squaring. */
static inline u64 pert_power(u64 base, u32 n)
{
	u64 power = SHARE_ONE;
	int bit;

	for (bit = 0; bit < 16; bit++) {
		if (n & 1)
			power = pert_share_of(power, base);
		base = pert_share_of(base, base);
		n >>= 1;
	}
	return power;
}

/* The smoothed round-trip time after a sample, `weight` being that of the old value. */
static inline u64 pert_smoothed(u64 old, u64 sample, u64 weight)
{
	if (sample >= old)
		return old + pert_share_of(sample - old, SHARE_ONE - weight);
	return old - pert_share_of(old - sample, SHARE_ONE - weight);
}

/* `periods` (as packets) smoothed round trips in microseconds, rounded up. */
static inline u64 pert_period(u64 srtt, u64 periods)
{
	u32 bits = DELAY_BITS - 4 + PACKET_BITS;

	return ((srtt >> 4) * periods + (1ull << bits) - 1) >> bits;
}

static inline u64 pert_t3(const struct pert_parameters *p, struct pert_queueing q)
{
	return pert_max(pert_share_of(q.maximum, p->t3_share), 2 * p->t_max);
}

/* Probability of an early response to one ACK, a share. */
static inline u64 pert_response_probability(const struct pert_parameters *p,
					    struct pert_queueing q)
{
	u64 t3 = pert_t3(p, q);

	if (q.current < p->t_min)
		return 0;
	if (q.current < p->t_max)
		return pert_share_of(p->p_max, pert_ratio(q.current - p->t_min,
							  p->t_max - p->t_min));
	if (q.current < t3)
		return p->p_max + pert_share_of(SHARE_ONE - p->p_max,
						pert_ratio(q.current - p->t_max, t3 - p->t_max));
	return SHARE_ONE;
}

/* beta: the share of the window given up at a response or a loss. */
static inline u64 pert_decrease(struct pert_queueing q)
{
	return pert_ratio(q.current, q.current + q.maximum);
}

static inline u32 pert_mode_of(const struct pert_parameters *p, struct pert_queueing q)
{
	if (q.current <= p->t_min)
		return PERT_HIGH_SPEED;
	if (q.current >= pert_share_of(q.maximum, p->compete_from))
		return PERT_COMPETE;
	return PERT_SAFE;
}

/* Where a queue is full, under early responses, by loss-based flows. */
static inline u64 pert_full_from(const struct pert_parameters *p, struct pert_queueing q,
				 int has_lost)
{
	if (!has_lost)
		return pert_t3(p, q);
	return pert_max(pert_share_of(q.maximum, p->compete_from), p->t_max);
}

static inline u64 pert_bounded(const struct pert_parameters *p, u64 alpha)
{
	return pert_min(pert_max(alpha, p->alpha_minimum), p->alpha_maximum);
}

/* Alpha's target in compete mode; `early_to_loss` is p'/p, as packets. */
static inline u64 pert_compete_target(const struct pert_parameters *p, struct pert_queueing q,
				      u64 early_to_loss)
{
	u64 share = pert_ratio(q.current, q.maximum);
	u64 reached = SHARE_ONE;

	if (share < p->compete_full && p->compete_full > p->compete_from) {
		u64 span = p->compete_full - p->compete_from;
		u64 beyond = share > p->compete_from ? share - p->compete_from : 0;
		u64 risen = SHARE_ONE - pert_ratio(p->ramp_pole, beyond + p->ramp_pole);

		reached = (risen * (span + p->ramp_pole) + span / 2) / span;
	}
	/* What would exceed alpha's bounds need not be multiplied out. */
	early_to_loss = pert_min(early_to_loss, PERT_MAX_WINDOW << PACKET_BITS);
	return pert_bounded(p, PACKET_ONE + pert_share_of(early_to_loss, reached));
}

/* Alpha after one periodic update in `mode`. */
static inline u64 pert_stepped_alpha(const struct pert_parameters *p, u64 alpha, u32 mode,
				     struct pert_queueing q, u64 early_to_loss)
{
	if (mode == PERT_HIGH_SPEED)
		alpha += p->high_speed_step;
	else if (mode == PERT_SAFE)
		alpha = pert_share_of(alpha, p->safe_factor);
	else if (early_to_loss == PERT_NO_LOSS)
		alpha += p->compete_step;
	else
		alpha = pert_min(alpha + p->compete_step,
				 pert_compete_target(p, q, early_to_loss));
	return pert_bounded(p, alpha);
}

/* Alpha where the mode sets it at once; 0 where it grows by steps. */
static inline u64 pert_immediate_alpha(const struct pert_parameters *p, u32 mode,
				       struct pert_queueing q, u64 early_to_loss)
{
	if (mode == PERT_SAFE)
		return p->alpha_minimum;
	if (mode == PERT_COMPETE && early_to_loss != PERT_NO_LOSS)
		return pert_compete_target(p, q, early_to_loss);
	return 0;
}

static inline void pert_intervals_on_packets(struct pert_intervals *intervals, u32 packets)
{
	intervals->open = pert_min((u64)intervals->open + packets, PERT_MAX_INTERVAL);
}

static inline void pert_intervals_close(struct pert_intervals *intervals)
{
	int i;

	for (i = PERT_INTERVALS - 1; i > 0; i--)
		intervals->closed[i] = intervals->closed[i - 1];
	intervals->closed[0] = intervals->open;
	intervals->open = 0;
	if (intervals->known < PERT_INTERVALS)
		intervals->known++;
}

/* The weight of the i-th interval times 5; all eight sum to 30 (RFC 5348, 5.4). */
static inline u64 pert_interval_weight(u32 i)
{
	return i < 4 ? 5 : 8 - i;
}

/* The weighted mean interval, as packets, at least 1; 0 before the first event. */
static inline u64 pert_intervals_mean(const struct pert_intervals *intervals)
{
	u64 closed = 0, with_open = 0, weights = 0;
	u32 newer = intervals->open;
	u32 i;

	for (i = 0; i < PERT_INTERVALS; i++) {
		u64 weight = pert_interval_weight(i);

		if (i >= intervals->known)
			break;
		closed += weight * intervals->closed[i];
		with_open += weight * newer;
		newer = intervals->closed[i];
		weights += weight;
	}
	if (!weights)
		return 0;
	return pert_max(((pert_max(closed, with_open) << PACKET_BITS) + weights / 2) / weights,
			PACKET_ONE);
}

/* p'/p as packets; PERT_NO_LOSS where no loss was ever seen. */
static inline u64 pert_early_to_loss(const struct pert_intervals *losses,
				     const struct pert_intervals *responses)
{
	u64 between_losses = pert_intervals_mean(losses);
	u64 between_responses = pert_intervals_mean(responses);

	if (!between_losses)
		return PERT_NO_LOSS;
	if (!between_responses)
		return 0;
	return ((between_losses << PACKET_BITS) + between_responses / 2) / between_responses;
}

#endif
