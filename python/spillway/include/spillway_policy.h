/* Policies of a user for Spillway, as C functions. See docs/guides/write_a_policy_in_c.md.
 *
 * Functions are called without Python's interpreter lock, from the thread of the run. They use their
 * arguments alone: no clock, no globals, no I/O. Pointers are valid only during the call. Texts are
 * UTF-8 and end with 0. All members have 8 bytes, so that the structs have no padding.
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

/* The value of a request in a further column of the trace (attribute.NAME). */
typedef struct {
  const char *name;  /* of the column, without "attribute." */
  const char *value; /* "": none */
  int64_t number;    /* of the value: equal values of a column have equal numbers; -1: none */
} spillway_attribute;

/* The request of a decision. Later versions of the header with the same SPILLWAY_POLICY_ABI only
 * add members at the end, so functions that were compiled with an earlier one still run. */
typedef struct {
  int64_t id;           /* position in the order of arrival */
  int64_t input_tokens; /* length of the prompt */
  int64_t tenant;       /* position of its tenant */
  int64_t slo_class;    /* position of its SLO class */
  int64_t priority;     /* of its SLO class; higher is more important */
  double arrival_s;     /* when it arrived, in seconds */
  double uniform;       /* random, >= 0 and < 1, for this decision; NaN unless asked for */
  int64_t max_tokens;   /* maximum of its output that its client states; 0: none */
  int64_t predicted_output_tokens; /* its output by length_prediction; at least 1 */
  int64_t model;                   /* number of the model that it names; 0: none */
  const char *model_name;          /* that name; "": none */
  int64_t num_attributes;
  const spillway_attribute *attributes; /* in the order of the columns of the trace */
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

/* The instances between which a decider of prefill and decode pools decides: those that the router
 * of each pool would choose now. Loads are the gateway's own counts of what it sent; later versions
 * add members as those of spillway_request do. */
typedef struct {
  int64_t prompt_tokens; /* input_tokens, with the output of instances that the request has lost */
  int64_t prompt_blocks; /* KV blocks of these */
  int64_t decode_instance;       /* number in the fleet; -1: the router would choose none */
  int64_t decode_cached_tokens;  /* of the prompt: sent there before, by the gateway's record */
  int64_t decode_pending_tokens; /* of prefill legs in flight there: to compute, without cached */
  int64_t decode_blocks_in_flight; /* of prompts in flight there, continued or served wholly */
  int64_t decode_max_num_batched_tokens; /* most tokens of a step */
  int64_t decode_num_kv_blocks;          /* KV blocks in total */
  int64_t prefill_instance;              /* the same of the prefill pool */
  int64_t prefill_cached_tokens;
  int64_t prefill_pending_tokens;
  int64_t prefill_blocks_in_flight;
  int64_t prefill_max_num_batched_tokens;
  int64_t prefill_num_kv_blocks;
} spillway_legs;

/* What a decider returns. Any other number ends the run. */
#define SPILLWAY_LOCAL 1  /* the prompt is computed where the request is continued */
#define SPILLWAY_REMOTE 0 /* it is computed in the prefill pool */

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

/* Decides where the prompt of a request is computed, at each dispatch while a prefill instance is
 * ready. */
typedef int32_t (*spillway_is_local)(const spillway_request *request, const spillway_legs *legs,
                                     double now_s, double *state);

#ifdef __cplusplus
}
#endif

#endif
