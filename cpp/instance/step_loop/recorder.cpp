#include "instance/step_loop/recorder.h"

#include <algorithm>

#include "instance/step_loop/jump.h"

namespace spillway::instance {

void Recorder::log_begun(const EngineState& s) {
  logged_ = log_->size() - 1;
  while (log_->at(logged_).scheduled.empty()) --logged_;
  ScheduledStep& call = log_->at(logged_);
  call.start = s.jump.start;
  call.end = s.jump.end_of_step();
  for (const Slot& slot : s.slots) {
    if (slot.tokens > 0 && !slot.is_decoding()) call.prompts.push_back(slot.id);
  }
  StepLoad load = s.jump.load;
  call.alone = duration_of(s.settings, load, s.jump.emits);
  call.without_prompts = call.alone;
  if (load.prefill_requests == 0) return;
  load.prefill_tokens = load.prefill_requests = 0;
  load.prefill_attention = load.prefill_squares = 0;
  load.context_tokens = load.decode_context_tokens;
  if (load.decode_requests == 0) {
    call.without_prompts = sim::Time{0};
    return;
  }
  call.without_prompts = std::min(call.alone, duration_of(s.settings, load, true));
}

}  // namespace spillway::instance
