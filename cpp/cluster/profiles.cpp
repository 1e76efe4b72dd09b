#include "cluster/profiles.h"

namespace spillway::cluster {

namespace {

constexpr ProfileSetting kSettings[] = {
    {"quantum_ns", "1", "1000", "durations are whole microseconds there"},
    {"instances[].completion", "step_end", "step_start",
     "there, completions and released memory are visible while their step still runs"},
    {"instances[].preemption", "keep_emitted", "restart",
     "there, a preempted request generates its output again"},
    {"instances[].output_overhead", "in_step", "reported",
     "there, delivering tokens costs reported latency but no time"},
    {"instances[].scheduler.priority", "slo_class", "constant",
     "there, the class has no effect on the priority of a request"},
    {"instances[].kv_cache.allocation", "check_then_act", "roll_back",
     "there, an allocation that fails midway is rolled back, and a whole prompt can be cached"},
    {"instances[].kv_cache.stores_last_token", "false", "true",
     "there, a request takes memory for its last token before it leaves"},
    {"router.ties", "first", "random", "there, one of equally good instances is drawn"},
    {"router.picker.ties", "first", "random", "there, one of equally good instances is drawn"},
    {"router.scorers[].load", "waiting", "effective",
     "there, the queue of an instance includes all its requests, some counted twice"},
    {"metrics.accounting", "clock", "blis", "there, latencies are sums of step durations"},
};

}  // namespace

std::span<const ProfileSetting> profile_settings() { return kSettings; }

}  // namespace spillway::cluster
