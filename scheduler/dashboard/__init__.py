"""A page of Dask's dashboard that shows the fits on a cluster; see `plugin`."""
