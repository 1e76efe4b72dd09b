#include "workload/prompts.h"

#include <algorithm>
#include <unordered_map>

namespace spillway::workload {

std::vector<CachedPart> warm_parts(const Requests& requests) {
  std::vector<CachedPart> parts;
  std::unordered_map<std::uint64_t, std::int64_t> known;  // up to where each beginning is cached
  for (std::size_t row = 0; row < requests.warm_tokens.size(); ++row) {
    const std::int64_t warm = requests.warm_tokens[row];
    SharedBeginnings beginnings(requests.segments_of(row));
    std::int64_t before = 0;
    while (before < warm && beginnings.advance()) {
      const std::int64_t end = std::min(warm, beginnings.tokens());
      std::int64_t& cached = known.try_emplace(beginnings.key(), before).first->second;
      if (cached < end) {
        parts.push_back({beginnings.key(), cached, end});
        cached = end;
      }
      before = beginnings.tokens();
    }
  }
  return parts;
}

}  // namespace spillway::workload
