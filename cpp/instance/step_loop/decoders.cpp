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
      group_size_(workload::TokenGaps::are_few(requests.num_groups()) ? requests.num_groups() : 0,
                  0),
      whole_size_(counts_tokens ? requests.num_groups() : 0, 0) {}

std::int64_t Decoders::held_blocks(std::int64_t steps) const {
  const std::int64_t block = block_size_.tokens();
  if (size_ < block) {
    std::int64_t blocks = 0;
    for (const Member& member : members()) {
      blocks += block_size_.blocks_for(computed(member) + steps);
    }
    return blocks;
  }
  // Together with the unused tokens of the last blocks, the contexts fill whole blocks.
  std::int64_t tokens = context_tokens_ + steps * size_;
  std::int64_t unused = block_size_.rest(block - block_size_.rest(step_residue_ + steps));
  for (const std::int32_t count : residues_) {
    tokens += count * unused;
    unused = (unused == 0 ? block : unused) - 1;
  }
  return block_size_.whole(tokens);
}

Decoders::Finishing Decoders::finishing() const {
  Finishing found;
  for (const Member& member : members()) {
    if (member.finish_step != step_ + 1) break;
    ++found.requests;
    // The last token completes a request's context; the step after it would add one more.
    found.blocks += block_size_.blocks_for(member.final_computed + 1) -
                    block_size_.blocks_for(member.final_computed);
  }
  return found;
}

void Decoders::begin_late_taking(std::int64_t steps) {
  taken_blocks_ = 0;
  for (std::size_t i = first_; i < members_.size(); ++i) {
    members_[i].taken_blocks = block_size_.blocks_for(computed(members_[i]) + steps);
    taken_blocks_ += members_[i].taken_blocks;
  }
}

std::int64_t Decoders::gaps_begin() const {
  const auto begins_before = [](const Member& a, const Member& b) {
    return a.gaps_begin < b.gaps_begin;
  };
  return std::ranges::min_element(members(), begins_before)->gaps_begin;
}

[[gnu::always_inline]] inline void Decoders::count_in(const Member& member, std::int64_t sign) {
  const std::int64_t context = computed(member);
  size_ += sign;
  context_tokens_ += sign * context;
  taken_blocks_ += sign * member.taken_blocks;
  residues_[residue(context)] += static_cast<std::int32_t>(sign);
  if (!whole_size_.empty()) whole_size_[member.group] += sign;
  if (!member.is_counted || group_size_.empty()) return;
  std::int64_t& size = group_size_[member.group];
  if (size == 0) present_groups_.push_back(member.group);
  size += sign;
  if (size == 0) std::erase(present_groups_, member.group);
}

void Decoders::join(sim::RequestId id, std::uint32_t entry, std::int64_t emitted,
                    const Holding& holding, std::int64_t gaps_begin) {
  if (first_ > members_.size() / 2) {
    members_.erase(members_.begin(), members_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  const std::int64_t target = requests_.target_output_tokens(id);
  Member& member = members_.emplace_back();
  member.finish_step = step_ + target - emitted;
  member.final_computed = requests_.input_tokens(id) + target - 1;
  member.taken_blocks = holding.blocks;
  member.gaps_begin = gaps_begin;
  member.entry = entry;
  member.id = id;
  member.group = group_size_.size() == 1 ? 0 : static_cast<std::uint32_t>(requests_.group(id));
  member.prefix = holding.prefix;
  member.returned = holding.returned;
  member.is_counted = requests_.is_counted(id);
  count_in(member, 1);
  if (size_ > 1 && finishes_before(member, *(&member - 1))) {
    const auto begin = members_.begin() + static_cast<std::ptrdiff_t>(first_);
    const auto place = std::upper_bound(begin, members_.end() - 1, member, finishes_before);
    std::rotate(place, members_.end() - 1, members_.end());
  }
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
