// Nanoseconds per operation of the KV pool and of the sums over decoding requests.
#include <memory>
#include <vector>

#include "instance/decoders.h"
#include "instance/kv_cache/block_pool.h"
#include "measure.h"
#include "workload/request_table.h"
#include "workload/requests.h"

using namespace spillway;

namespace {

constexpr std::int64_t kBlockSize_tokens = 16;
constexpr std::int32_t kInput_tokens = 512;
constexpr std::int32_t kOutput_tokens = 128;

// A request of a batch of `size` grows by a token; one that has all of its tokens starts afresh.
void extend_and_release(std::size_t size) {
  instance::BlockPool pool(1 << 20, kBlockSize_tokens);
  struct Held {
    std::int64_t blocks = 0;
    std::int64_t tokens = kInput_tokens;
  };
  std::vector<Held> batch(size);
  micro::Sequence progress(kOutput_tokens);
  for (Held& one : batch) one.tokens += progress.next();
  std::size_t turn = 0;
  micro::measure("kv_extend", size, [&](std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) {
      Held& one = batch[turn];
      turn = turn + 1 == size ? 0 : turn + 1;
      if (!pool.extend(one.blocks, ++one.tokens) || one.tokens == kInput_tokens + kOutput_tokens) {
        pool.release(one.blocks);
        one.tokens = kInput_tokens;
      }
    }
    micro::keep(pool);
  });
}

void release(std::size_t size) {
  instance::BlockPool pool(1 << 20, kBlockSize_tokens);
  std::vector<std::int64_t> held(size, 0);
  std::size_t turn = 0;
  micro::measure("kv_extend_release", size, [&](std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) {
      std::int64_t& blocks = held[turn];
      turn = turn + 1 == size ? 0 : turn + 1;
      pool.extend(blocks, kInput_tokens + static_cast<std::int64_t>(i % kOutput_tokens));
      pool.release(blocks);
      micro::keep(pool);
    }
  });
}

// A batch of `size`: jump to the next completion, take out who has finished, let others join.
// One operation is one request.
void join_advance_pop(std::size_t size) {
  auto source = std::make_shared<workload::Requests>();
  source->arrival.assign(size, sim::Time{0});
  source->input_tokens.assign(size, kInput_tokens);
  source->output_tokens.assign(size, kOutput_tokens);
  source->tenant.assign(size, 0);
  source->slo_class.assign(size, 0);
  source->tenants = {"default"};
  source->slo_classes = {"standard"};
  const workload::RequestTable requests(source, {}, {}, sim::Time{0});
  instance::Decoders decoders(requests, instance::BlockSize(kBlockSize_tokens));
  micro::Sequence progress(kOutput_tokens - 1);
  std::uint32_t entry = 0;
  for (std::size_t i = 0; i < size; ++i) {
    decoders.join(sim::RequestId{i}, entry++, 1 + progress.next());
  }
  std::int64_t blocks = 0;
  micro::measure("decoders_join_advance_pop", size, [&](std::size_t operations) {
    for (std::size_t done = 0; done < operations;) {
      decoders.advance(decoders.steps_to_finish());
      while (decoders.has_finished() && done < operations) {
        const instance::Decoders::Member left = decoders.pop_finished();
        decoders.join(left.id, entry++, 1);
        ++done;
      }
    }
    micro::keep(decoders);
  });
  micro::measure("decoders_new_blocks", size, [&](std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) {
      blocks += decoders.new_blocks(0, 1 + static_cast<std::int64_t>(i % kOutput_tokens));
    }
    micro::keep(blocks);
  });
}

}  // namespace

int main() {
  for (const std::size_t size : {16, 256}) extend_and_release(size);
  for (const std::size_t size : {16, 256}) release(size);
  for (const std::size_t size : {16, 64, 256}) join_advance_pop(size);
}
