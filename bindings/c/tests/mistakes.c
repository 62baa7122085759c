#define _POSIX_C_SOURCE 200809L
/* What a program may do wrong: each gives an error with a sentence, and nothing crashes. Prints the
 * sentences; exits with 1 and the line of the first that is not as it ought to be. */
#include <ontempo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WRONG(status, call)                                                                        \
    do {                                                                                           \
        int32_t got = (call);                                                                      \
        if (got != (status) || strlen(ontempo_error()) < 8) {                                      \
            fprintf(stderr, "line %d: %d, %s\n", __LINE__, got, ontempo_error());                  \
            exit(1);                                                                               \
        }                                                                                          \
        puts(ontempo_error());                                                                     \
    } while (0)
#define RIGHT(call)                                                                                \
    do {                                                                                           \
        int32_t got = (call);                                                                      \
        if (got != ONTEMPO_OK) {                                                                   \
            fprintf(stderr, "line %d: %d, %s\n", __LINE__, got, ontempo_error());                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

int main(void)
{
    struct ontempo_options *options, *stale;
    struct ontempo_listener *listener;
    struct ontempo_connection *here, *there;
    struct ontempo_send_flow *flow;
    struct ontempo_receive_flow *received;
    char text[65];

    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_options_new(NULL));
    RIGHT(ontempo_options_new(&options));
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_options_set(options, NULL, "x"));
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_options_set(options, "\xff", "x"));
    WRONG(ONTEMPO_ERROR_OPTION, ontempo_options_set(options, "tokn", "x"));
    WRONG(ONTEMPO_ERROR_OPTION, ontempo_options_set(options, "token", ""));
    WRONG(ONTEMPO_ERROR_OPTION, ontempo_options_set(options, "fingerprint", "12"));
    WRONG(ONTEMPO_ERROR_OPTION, ontempo_options_set(options, "idle-timeout", "soon"));
    WRONG(ONTEMPO_ERROR_OPTION, ontempo_options_set(options, "congestion", "none"));
    WRONG(ONTEMPO_ERROR_IDENTITY, ontempo_options_set(options, "ca-file", "/nonexistent/ca"));
    WRONG(ONTEMPO_ERROR_HANDLE, ontempo_options_set(NULL, "token", "x"));
    WRONG(ONTEMPO_ERROR_OPTION, ontempo_connect("127.0.0.1:9", NULL, &here));
    RIGHT(ontempo_options_new(&stale));
    RIGHT(ontempo_options_free(stale));
    WRONG(ONTEMPO_ERROR_HANDLE, ontempo_options_free(stale));
    WRONG(ONTEMPO_ERROR_HANDLE, ontempo_connect("127.0.0.1:9", stale, &here));

    WRONG(ONTEMPO_ERROR_OPTION, ontempo_listen("127.0.0.1:0", options, &listener));
    RIGHT(ontempo_options_set(options, "token", "secret"));
    WRONG(ONTEMPO_ERROR_ADDRESS, ontempo_listen("127.0.0.1", options, &listener));
    WRONG(ONTEMPO_ERROR_ADDRESS, ontempo_listen("192.0.2.1:4434", options, &listener));
    RIGHT(ontempo_listen("127.0.0.1:0", options, &listener));
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_listener_address(listener, NULL, 0));
    RIGHT(ontempo_listener_address(listener, text, sizeof text));
    if (ontempo_accept(listener, 0, &there) != ONTEMPO_TIMED_OUT)
        return 1;
    /* A handle of another kind. */
    WRONG(ONTEMPO_ERROR_HANDLE, ontempo_connection_free((struct ontempo_connection *)listener));

    RIGHT(ontempo_options_set(options, "insecure", "true"));
    RIGHT(ontempo_options_new(&stale));
    RIGHT(ontempo_options_set(stale, "insecure", "true"));
    RIGHT(ontempo_options_set(stale, "token", "guess"));
    WRONG(ONTEMPO_ERROR_NOT_CONNECTED, ontempo_connect(text, stale, &here));
    RIGHT(ontempo_connect(text, options, &here));
    RIGHT(ontempo_accept(listener, 10000, &there));

    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_open_flow(here, 3, ONTEMPO_FULL, "", &flow));
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_open_flow(here, 0, 9, "", &flow));
    RIGHT(ontempo_open_flow(here, ONTEMPO_IN_ORDER, ONTEMPO_FULL, "a", &flow));
    struct ontempo_outgoing unit = { .size = sizeof unit, .data = (const uint8_t *)"x", .length = 1 };
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_send(flow, NULL, 0, NULL));
    unit.size = 4;
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_send(flow, &unit, 0, NULL));
    unit.size = sizeof unit, unit.data = NULL;
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_send(flow, &unit, 0, NULL));
    unit.data = (const uint8_t *)"x", unit.lifetime_us = 1000;
    WRONG(ONTEMPO_ERROR_UNIT, ontempo_send(flow, &unit, 0, NULL));
    unit.lifetime_us = 0, unit.depends_on_count = 33;
    WRONG(ONTEMPO_ERROR_UNIT, ontempo_send(flow, &unit, 0, NULL));
    unit.depends_on_count = 0;
    RIGHT(ontempo_send(flow, &unit, 0, NULL));
    struct ontempo_connection_statistics statistics = { .size = 3 };
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_connection_get_statistics(here, &statistics));
    statistics.size = sizeof statistics;
    RIGHT(ontempo_connection_get_statistics(here, &statistics));
    RIGHT(ontempo_accept_flow(there, 10000, &received));
    uint32_t order = 9, reliability = 9;
    RIGHT(ontempo_receive_flow_get(received, text, sizeof text, &order, &reliability));
    if (strcmp(text, "a") != 0 || order != ONTEMPO_IN_ORDER || reliability != ONTEMPO_FULL)
        return 1;
    RIGHT(ontempo_connection_free(here));
    WRONG(ONTEMPO_ERROR_HANDLE, ontempo_connection_free(here));
    /* Its thread closes it in a moment. */
    for (int tries = 0; tries < 1000 && ontempo_send(flow, &unit, 0, NULL) == ONTEMPO_OK; tries++)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    WRONG(ONTEMPO_ERROR_CLOSED, ontempo_send(flow, &unit, 1000, NULL));
    RIGHT(ontempo_send_flow_free(flow));
    WRONG(ONTEMPO_ERROR_HANDLE, ontempo_finish(flow, 0));
    int32_t status;
    while ((status = ontempo_connection_get_statistics(there, &statistics)) == ONTEMPO_OK)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    if (status != ONTEMPO_ERROR_CLOSED)
        return 1;
    /* A mistake takes no event away. */
    struct ontempo_event event = { .size = 0 };
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_next_event(there, 10000, &event));
    WRONG(ONTEMPO_ERROR_ARGUMENT, ontempo_next_event(there, 10000, NULL));
    event.size = sizeof event;
    while ((status = ontempo_next_event(there, 10000, &event)) == ONTEMPO_OK)
        printf("%u %s\n", event.kind, event.text);
    if (status != ONTEMPO_ENDED || event.kind != ONTEMPO_EVENT_CLOSED || !event.has_code)
        return 1;
    RIGHT(ontempo_receive_flow_free(received));
    RIGHT(ontempo_connection_free(there));
    RIGHT(ontempo_listener_free(listener));
    RIGHT(ontempo_options_free(stale));
    RIGHT(ontempo_options_free(options));
    return 0;
}
