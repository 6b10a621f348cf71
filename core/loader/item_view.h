// Items and boxes of snapshots to and from their C structs. The C structs point into what they were made from.
#pragma once

#include "core/checkpoint/item.h"
#include "core/loader/abi.h"
#include "core/loader/status.h"

namespace shale {

shale_value value_to_c(const ItemValue&);
shale_item item_to_c(const Item&, const shale_value*);  // value: of an item of kind value, else null
shale_box box_to_c(const Box&);

// What a format found in a file: nothing in it is trusted. null = fine.
shale_status* item_from_c(const shale_item*, Item& out);
shale_status* box_from_c(const shale_box*, Box& out);

}  // namespace shale
