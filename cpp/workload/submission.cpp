#include "workload/submission.h"

#include <string>

#include "sim/names.h"

namespace spillway::workload {

void Submission::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  std::int64_t shared = 0;
  for (const PromptSegment& segment : segments) shared += segment.tokens;
  if (shared > input_tokens) {
    out.push_back(
        {sim::join_path(path, "segments"), std::to_string(shared) + " tokens",
         "must be within the prompt, which has input_tokens = " + std::to_string(input_tokens)});
  }
  if (!max_tokens || *max_tokens >= output_tokens) return;
  out.push_back({sim::join_path(path, "max_tokens"), std::to_string(*max_tokens),
                 "must be >= output_tokens (" + std::to_string(output_tokens) + ")"});
}

void HandOff::validate(const std::string& path, std::vector<sim::Violation>& out) const {
  if (!max_tokens || *max_tokens >= output_tokens) return;
  out.push_back({sim::join_path(path, "max_tokens"), std::to_string(*max_tokens),
                 "must be >= output_tokens (" + std::to_string(output_tokens) + ")"});
}

}  // namespace spillway::workload
