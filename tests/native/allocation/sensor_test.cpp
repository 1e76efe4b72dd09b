// A sensor allocates nothing once a window has been filled.
#include "signals/sensor.h"

#include <cstddef>
#include <cstdint>

#include "allocation/counting.h"
#include "check.h"

using spillway::signals::Aggregation;
using spillway::signals::Sensor;
using spillway::signals::SensorScope;
using spillway::signals::SensorState;
using spillway::sim::from_seconds;
using spillway::sim::TenantId;

namespace {

void nothing_is_allocated_once_warm() {
  for (int aggregation = 0; aggregation < 5; ++aggregation) {
    Sensor config;
    config.aggregation = static_cast<Aggregation>(aggregation);
    config.scope = SensorScope::max_over_tenants;
    SensorState state(config, 2);
    std::int64_t before = 0;
    for (int tick = 1; tick <= 100; ++tick) {
      if (tick == 20) before = allocations();
      for (int i = 0; i < 100; ++i) {
        const double at_s = 5 * (tick - 1) + 0.05 * i;
        state.record(TenantId{static_cast<std::size_t>(i % 2)}, 0.1 * i, from_seconds(at_s));
      }
      state.read(from_seconds(5 * tick));
    }
    const std::int64_t after = allocations();
    check(after == before, "a filled window costs no allocation");
  }
}

}  // namespace

CASES(nothing_is_allocated_once_warm);
