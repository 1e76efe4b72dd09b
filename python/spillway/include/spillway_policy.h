/* Policies of a user for Spillway, as C functions. See docs/guides/write_a_policy_in_c.md.
 *
 * Functions are called without Python's interpreter lock, from the thread of the run. They use their
 * arguments alone: no clock, no globals, no I/O. Pointers are valid only during the call. All
 * members have 8 bytes, so that the structs have no padding.
 */
#ifndef SPILLWAY_POLICY_H
#define SPILLWAY_POLICY_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. A change that breaks compiled functions raises it. */
#define SPILLWAY_POLICY_ABI 1

/* What an admission policy returns. Any other number ends the run. */
#define SPILLWAY_ADMIT 1
#define SPILLWAY_REJECT_SATURATED 0
#define SPILLWAY_REJECT_RATE_LIMITED -1
#define SPILLWAY_REJECT_UNSERVABLE -2

/* The request of a decision. */
typedef struct {
  int64_t id;           /* position in the order of arrival */
  int64_t input_tokens; /* length of the prompt */
  int64_t tenant;       /* position of its tenant */
  int64_t slo_class;    /* position of its SLO class */
  int64_t priority;     /* of its SLO class; higher is more important */
  double arrival_s;     /* when it arrived, in seconds */
  double uniform;       /* random, >= 0 and < 1, for this decision; NaN unless asked for */
} spillway_request;

/* A candidate instance as the gateway sees it: its metrics are as old as the signals make them. */
typedef struct {
  int64_t instance;       /* its number in the fleet */
  int64_t waiting;        /* requests in the engine's queue */
  int64_t running;        /* requests in the batch */
  int64_t in_flight;      /* requests routed there and not finished: the gateway's own count */
  int64_t free_blocks;    /* free KV blocks */
  int64_t prefill_tokens; /* prompt tokens not yet computed */
  int64_t num_kv_blocks;  /* KV blocks in total */
  int64_t max_num_seqs;   /* largest batch */
  double kv_utilization;  /* used share of the KV blocks, 0 to 1 */
  double age_s;           /* age of the metrics in seconds; NaN: never measured */
} spillway_instance;

/* Decides on a request. `instances` has `num_instances` entries; none if the policy does not read
 * them. `state` is the policy's own memory: each gateway replica of each run begins with a copy of
 * the values that were given to spillway.policies.compiled_admission. It charges nothing: another policy of
 * the chain may still reject the request. */
typedef int32_t (*spillway_decide)(const spillway_request *request,
                                   const spillway_instance *instances, int64_t num_instances,
                                   double now_s, double *state);

/* Notifies an admission policy: of the admission (commit), the dispatch, the first token or the end
 * of a request. `uniform` is NaN. */
typedef void (*spillway_notify)(const spillway_request *request, double now_s, double *state);

/* Writes the score of each instance to `scores`: higher is better, clamped to [0, 1], never NaN. */
typedef void (*spillway_score)(const spillway_request *request, const spillway_instance *instances,
                               int64_t num_instances, double now_s, double *state, double *scores);

#ifdef __cplusplus
}
#endif

#endif
