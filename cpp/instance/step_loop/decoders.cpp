#include "instance/step_loop/decoders.h"

#include <algorithm>

namespace spillway::instance {

namespace {

bool finishes_before(const Decoders::Member& a, const Decoders::Member& b) {
  return a.finish_step != b.finish_step ? a.finish_step < b.finish_step : a.entry < b.entry;
}

}  // namespace

Decoders::Decoders(const workload::RequestTable& requests, BlockSize block_size, bool counts_tokens)
    : requests_(requests),
      block_size_(block_size),
      residues_(static_cast<std::size_t>(block_size.tokens()), 0),
      group_size_(requests.num_groups(), 0),
      whole_size_(counts_tokens ? requests.num_groups() : 0, 0) {}

std::int64_t Decoders::held_blocks(std::int64_t steps) const {
  std::int64_t blocks = 0;
  for (const Member& member : members()) {
    blocks += block_size_.blocks_for(computed(member) + steps);
  }
  return blocks;
}

void Decoders::count_in(const Member& member, std::int64_t sign) {
  const std::int64_t context = computed(member);
  context_tokens_ += sign * context;
  residues_[residue(context)] += static_cast<std::int32_t>(sign);
  if (!whole_size_.empty()) whole_size_[requests_.group(member.id)] += sign;
  if (!requests_.is_counted(member.id)) return;
  const std::size_t group = requests_.group(member.id);
  if (group_size_[group] == 0) present_groups_.push_back(group);
  group_size_[group] += sign;
  if (group_size_[group] == 0) std::erase(present_groups_, group);
}

void Decoders::join(sim::RequestId id, std::uint32_t entry, std::int64_t emitted,
                    const Holding& holding) {
  const Member member{step_ + requests_.target_output_tokens(id) - emitted, entry, id,
                      holding.prefix, holding.returned};
  if (first_ > members_.size() / 2) {
    members_.erase(members_.begin(), members_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  auto place = members_.end();
  const auto begin = members_.begin() + static_cast<std::ptrdiff_t>(first_);
  if (place != begin && finishes_before(member, *(place - 1))) {
    place = std::upper_bound(begin, place, member, finishes_before);
  }
  members_.insert(place, member);
  count_in(member, 1);
}

Decoders::Member Decoders::pop_finished() {
  const Member member = members_[first_++];
  count_in(member, -1);
  return member;
}

void Decoders::take_all(std::vector<Member>& members) {
  for (const Member& member : this->members()) count_in(member, -1);
  members.assign(members_.begin() + static_cast<std::ptrdiff_t>(first_), members_.end());
  members_.clear();
  first_ = 0;
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.entry < b.entry; });
}

}  // namespace spillway::instance
