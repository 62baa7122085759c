// SPDX-License-Identifier: GPL-2.0
/*
 * The headers of this folder, compiled for the host and driven by vectors: a row on standard input
 * (numbers in fixed point behind a letter) gives a row of results, numbers in fixed point.
 *
 *   P  parameters, 22 numbers
 *   L  current, maximum, p'/p (all bits: no loss), alpha, mode
 *      -> T_3, probability, decrease, mode, target, stepped alpha, immediate alpha
 *   K  base, n -> base to the power of n
 *   I  the open interval, then closed ones from the oldest -> mean
 *   S  window, threshold: a connection starts
 *   A  now, packets, rtt, felt, draw, may grow   an ACK
 *   R  the same                                  an ACK during recovery
 *   O                                  a loss
 *   T                                  a timeout
 *      -> window, threshold, alpha, mode, queueing delay, early responses
 *   F  bytes acknowledged, bytes sent, whether it is a response; both modulo 2^32
 *      -> whether a packet sent after the last response is acknowledged
 */
#include <stdio.h>
#include <string.h>

#include "pert_flow.h"

#define MAX_NUMBERS 32

static struct pert_parameters p;
static struct pert_flow flow;

static void law(const u64 *n)
{
	struct pert_queueing q = { .current = n[0], .maximum = n[1] };
	int no_loss = n[2] == PERT_NO_LOSS;

	printf("%llu %llu %llu %u %llu %llu %llu\n", pert_t3(&p, q),
	       pert_response_probability(&p, q), pert_decrease(q), pert_mode_of(&p, q),
	       no_loss ? 0 : pert_compete_target(&p, q, n[2]),
	       pert_stepped_alpha(&p, n[3], (u32)n[4], q, n[2]),
	       pert_immediate_alpha(&p, (u32)n[4], q, n[2]));
}

static void intervals(const u64 *n, int count)
{
	struct pert_intervals history = { .known = 0 };
	int i;

	for (i = 1; i < count; i++) {
		pert_intervals_on_packets(&history, (u32)n[i]);
		pert_intervals_close(&history);
	}
	pert_intervals_on_packets(&history, (u32)n[0]);
	printf("%llu\n", pert_intervals_mean(&history));
}

static void felt(const u64 *n)
{
	static u32 until;

	printf("%d\n", pert_feels(&until, (u32)n[0]));
	if (n[2])
		until = (u32)n[1];
}

static void event(char kind, const u64 *n)
{
	struct pert_ack ack = {
		.now = n[0],
		.clock = n[0],
		.packets = (u32)n[1],
		.rtt = (u32)n[2],
		.felt = (u8)n[3],
		.draw = (u32)n[4],
		.in_recovery = kind == 'R',
		.may_grow = (u8)n[5],
	};

	if (kind == 'S') {
		memset(&flow, 0, sizeof(flow));
		pert_start(&flow, &p, n[0], n[1]);
	} else if (kind == 'O') {
		pert_on_loss(&flow, &p);
		flow.cwnd = flow.ssthresh;
	} else if (kind == 'T') {
		pert_on_loss(&flow, &p);
		/* The kernel's part. */
		flow.cwnd = PACKET_ONE;
	} else {
		pert_on_ack(&flow, &p, &ack);
	}
	printf("%llu %llu %llu %u %llu %llu\n", flow.cwnd, flow.ssthresh, flow.alpha, flow.mode,
	       pert_queueing_of(&flow, &p).current, flow.early_responses);
}

int main(void)
{
	u64 n[MAX_NUMBERS];
	char kind;

	while (scanf(" %c", &kind) == 1) {
		int count = 0;

		memset(n, 0, sizeof(n));
		while (count < MAX_NUMBERS && scanf("%llu", &n[count]) == 1)
			count++;
		switch (kind) {
		case 'P':
			memcpy(&p, n, sizeof(p));
			break;
		case 'L':
			law(n);
			break;
		case 'K':
			printf("%llu\n", pert_power(n[0], (u32)n[1]));
			break;
		case 'I':
			intervals(n, count);
			break;
		case 'F':
			felt(n);
			break;
		default:
			event(kind, n);
		}
	}
	return 0;
}
