#include "instance/step_loop/forecast.h"

#include <algorithm>
#include <vector>

#include "instance/step_loop/recorder.h"
#include "instance/step_loop/transitions.h"

namespace spillway::instance {

using sim::RequestId;
using sim::Time;

Time predict_first_token(const EngineState& state, std::span<const Entry> entries, Time now) {
  const RequestId watched = entries.back().id;
  if (!can_hold(state, watched)) return sim::kUnset;
  std::vector<Entry> pending(entries.begin(), entries.end());
  std::stable_sort(pending.begin(), pending.end(),
                   [](const Entry& a, const Entry& b) { return a.at < b.at; });
  auto next = pending.begin();
  EngineState s = state;
  Recorder watch(state.settings, watched);
  while (!sim::is_set(watch.watched_first_token())) {
    // At one instant a step ends, then requests enter, then a step starts.
    const Time entry = next == pending.end() ? sim::kForever : next->at;
    if (s.activity == Activity::stepping && s.jump.end <= entry) {
      now = s.jump.end;
      end_step(s, watch, now);
      if (has_work(s)) s.activity = Activity::step_requested;
    } else if (s.activity == Activity::step_requested && now < entry) {
      start_step(s, watch, now);
    } else {
      if (next == pending.end()) return sim::kUnset;
      now = next->at;
      if (can_hold(s, next->id)) join_queue(s, watch, next->id, now);
      if (s.activity == Activity::idle && has_work(s)) s.activity = Activity::step_requested;
      ++next;
    }
    if (now > sim::from_seconds(sim::kLongestSpan_s)) return sim::kUnset;
  }
  return watch.watched_first_token();
}

}  // namespace spillway::instance
