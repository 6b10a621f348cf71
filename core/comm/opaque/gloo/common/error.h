// Stand-in (see ../context.h): c10d includes it and uses nothing of it.
#pragma once
