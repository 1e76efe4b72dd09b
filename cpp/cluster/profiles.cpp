#include "cluster/profiles.h"

namespace spillway::cluster {

namespace {

constexpr ProfileSetting kSettings[] = {
    {"quantum_ns", "1", "1000", "durations are whole microseconds there"},
    {"instances[].completion", "step_end", "step_start",
     "there, completions and released memory are visible while their step still runs"},
    {"instances[].preemption", "keep_emitted", "restart",
     "there, a preempted request produces its output again"},
    {"instances[].output_overhead", "in_step", "reported",
     "there, delivering tokens costs reported latency but no time"},
    {"instances[].scheduler.priority", "slo_class", "constant",
     "there, the class has no bearing on the priority of a request"},
    {"router.ties", "first", "random", "there, one of equally good instances is drawn"},
    {"metrics.accounting", "clock", "blis", "there, latencies are sums of step durations"},
};

}  // namespace

std::span<const ProfileSetting> profile_settings() { return kSettings; }

}  // namespace spillway::cluster
